"""A plain training loop around a network of transformers, one with peft's adapters, or one written by hand.

Run by ``python benchmarks/gpu/steps.py FOLDER``; needs torch, transformers and a GPU, and peft for adapters.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from cases import TIMED_STEPS, WARM_STEPS, Case
from models import build, inputs_of
from plain import PLAIN, Decoder


def precision_context(case: Case) -> Any:
    """Autocast, where the recipe is one of autocast."""
    if case.precision.startswith("amp"):
        dtype = torch.float16 if case.precision == "amp-fp16" else torch.bfloat16
        return torch.autocast("cuda", dtype=dtype)
    return torch.autocast("cuda", enabled=False)


def optimizer_of(case: Case, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """One of torch's own."""
    parameters = [one for one in parameters if one.requires_grad]
    if case.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1e-6)
    if case.optimizer == "adamw-fused":
        return torch.optim.AdamW(parameters, lr=1e-6, fused=True)
    if case.optimizer == "adamw-forloop":
        return torch.optim.AdamW(parameters, lr=1e-6, foreach=False)
    return torch.optim.AdamW(parameters, lr=1e-6)  # foreach


def own_loop(case: Case) -> Callable[[], None]:
    """One step of a plain loop: forward, backward, optimizer, ``zero_grad``; neither clipping nor logging."""
    dtype = torch.bfloat16 if case.precision == "pure-bf16" else torch.float32
    model, batch = by_hand(case, dtype) if case.loop == "hand" else by_transformers(case, dtype)
    model.train()
    optimizer = optimizer_of(case, model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=case.precision == "amp-fp16")
    run = torch.compile(model) if case.compiled else model

    def step() -> None:
        for _ in range(case.accumulate):
            with precision_context(case):
                answer = run(**batch)
                loss = answer if case.loop == "hand" else answer.loss
                del answer
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def by_transformers(case: Case, dtype: torch.dtype) -> tuple[Any, dict[str, torch.Tensor]]:
    """transformers' network and a batch."""
    model = build(case.model, case.attention, dtype, case.changes)
    if case.loop == "adapters":
        model = with_adapters(model)
    if case.recompute != "none":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model, inputs_of(case.model, case.micro_batch, case.seq, dtype, case.changes)


def by_hand(case: Case, dtype: torch.dtype) -> tuple[Any, dict[str, torch.Tensor]]:
    """A network written by hand and a batch."""
    with torch.device("cuda"):
        model = Decoder(PLAIN[case.model], case.attention == "eager").to(dtype)
        tokens = torch.randint(PLAIN[case.model].vocab, (case.micro_batch, case.seq))
    return model, {"tokens": tokens, "labels": tokens.clone()}


def with_adapters(model: Any) -> Any:
    """LoRA of rank 16 on all products of attention and MLP."""
    from peft import LoraConfig, get_peft_model

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return get_peft_model(model, LoraConfig(r=16, target_modules=targets, lora_dropout=0.0))


def own_seconds(step: Callable[[], None]) -> tuple[float, float]:
    """Median seconds of a step, each waited for, and the mean of steps that are issued one after another."""
    for _ in range(WARM_STEPS):
        step()
    torch.cuda.synchronize()
    each = []
    for _ in range(TIMED_STEPS):
        begun = time.perf_counter()
        step()
        torch.cuda.synchronize()
        each.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    for _ in range(TIMED_STEPS):
        step()
    torch.cuda.synchronize()
    return statistics.median(each), (time.perf_counter() - begun) / TIMED_STEPS
