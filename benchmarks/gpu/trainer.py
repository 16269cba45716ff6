"""Steps of transformers' Trainer, by a callback's clock.

Run by ``python benchmarks/gpu/steps.py FOLDER --only trainer``; needs torch, transformers, accelerate and a GPU.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from cases import TIMED_STEPS, WARM_STEPS, Case
from models import build, inputs_of


class Samples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """As many rows of random tokens as asked for."""

    def __init__(self, case: Case, rows: int) -> None:
        batch = inputs_of(case.model, rows, case.seq, torch.float32, case.changes)
        self.batch = {key: value.cpu() for key, value in batch.items()}
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {key: value[place] for key, value in self.batch.items()}


class Clock(transformers.TrainerCallback):
    """When the timed steps of Trainer began and ended."""

    def __init__(self) -> None:
        self.begun = self.ended = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Reads the clock before the first and after the last of the timed steps."""
        if state.global_step == WARM_STEPS:
            torch.cuda.synchronize()
            self.begun = time.perf_counter()
        if state.global_step == WARM_STEPS + TIMED_STEPS:
            torch.cuda.synchronize()
            self.ended = time.perf_counter()


def trainer_seconds(case: Case, folder: Path) -> float:
    """Mean seconds of a step of transformers' Trainer with its defaults, without logging."""
    dtype = torch.bfloat16 if case.precision == "pure-bf16" else torch.float32
    model = build(case.model, case.attention, dtype, case.changes)
    steps = WARM_STEPS + TIMED_STEPS
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=case.micro_batch,
        gradient_accumulation_steps=case.accumulate,
        max_steps=steps,
        bf16=case.precision == "amp-bf16",
        gradient_checkpointing=case.recompute != "none",
        torch_compile=case.compiled,
        optim="adamw_torch_fused" if case.optimizer == "adamw-fused" else "adamw_torch",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    clock = Clock()
    samples = Samples(case, case.micro_batch * case.accumulate * (steps + 1))
    transformers.Trainer(model=model, args=arguments, train_dataset=samples, callbacks=[clock]).train()
    return (clock.ended - clock.begun) / TIMED_STEPS
