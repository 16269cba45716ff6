"""How often the loss passes over its logits, and what of that the last cache spares."""

from __future__ import annotations

import pytest

from distsim.arrays import Number
from distsim.engine.passes import LOSS_AGAIN, LOSS_BYTES, moved_bytes
from distsim.engine.resolve import Setup, resolve
from distsim.engine.stages import build_stages
from distsim.formulas.compute import CACHE_RATE, reread_share
from distsim.specs.job import Job


def per_logit(framework: str, gpu: str = "a100-sxm4-80gb", model: str = "llama-7b", **kernels: object) -> Number:
    """Bytes that forward moves per logit."""
    setup: Setup = resolve(Job(model=model, gpu=gpu, gpus=8, framework=framework))
    object.__setattr__(setup, "kernels", setup.kernels.model_copy(update=kernels))
    head = build_stages(setup)[-1].head
    assert head is not None
    loss = next(one for one in head.operations if one.kind == "loss")
    return moved_bytes(setup, loss)[0] / (loss.shape[0] * loss.shape[1])


def test_rows_that_fit_the_cache_are_found_there() -> None:
    assert reread_share(1e5, 100, 50e6) == pytest.approx(1 / CACHE_RATE)
    assert reread_share(1e6, 100, 50e6) == pytest.approx(1 - 0.25 * (1 - 1 / CACHE_RATE))
    assert reread_share(1e6, 100, 0.0) == 1


def test_composed_loss_reads_wide_rows_from_memory() -> None:
    """A row of 128,256 words in fp32 is four times as long as one of 32,000, which A100's cache holds."""
    short, long = (per_logit("huggingface", model=name) for name in ("llama-7b", "llama-3-8b"))
    assert short == pytest.approx(LOSS_BYTES["eager"][0] - LOSS_AGAIN["eager"][0] * (1 - 1 / CACHE_RATE))
    assert short < long < LOSS_BYTES["eager"][0]


def test_metrics_take_the_loss_once_more_each() -> None:
    """Composer's cross entropy and perplexity, each composed in fp32 beside a fused loss."""
    one = per_logit("huggingface")
    assert per_logit("llm-foundry", loss_metrics=0) == LOSS_BYTES["one"][0]
    assert per_logit("llm-foundry") == pytest.approx(LOSS_BYTES["one"][0] + 2 * one)
