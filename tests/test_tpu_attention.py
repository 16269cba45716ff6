"""Attention on TPUs: which kernel a run has, and how many products its backward takes."""

from __future__ import annotations

import pytest

from distsim import catalog
from distsim.engine.evidence import setup_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.attention_rates import FLASH_BACKWARD_SHARE, attention_rates
from distsim.engine.step import seconds_of
from distsim.interop.run_attention import kernel_said
from distsim.interop.runs import Run
from distsim.specs.job import Job

ROW = {"id": "x", "year": "2025", "model": "llama-3-8b", "gpu": "tpu-v6e", "n_gpus": "4", "zero_stage": "3",
       "seq_len": "8192", "global_batch": "8", "precision": "bf16", "framework": "torchprime"}  # fmt: skip


@pytest.mark.parametrize(("gpu", "products"), [("tpu-v5p", 7), ("tpu-v5e", 7), ("tpu-v6e", 5), ("h100-sxm", 5)])
def test_backward_takes_scores_twice_unless_it_is_fused(gpu: str, products: int) -> None:
    setup = resolve(Job(model="llama-3-8b", gpu=gpu, framework="maxtext"))
    forward, backward = attention_rates(setup)
    share = backward / forward / (FLASH_BACKWARD_SHARE if gpu != "h100-sxm" else backward / forward)
    assert share == pytest.approx(5 / products)
    assert catalog.load("gpus", gpu).chip.attention_products in (products, None)


@pytest.mark.parametrize(
    ("framework", "notes", "kernel"),
    [
        ("torchprime", "ici_mesh.fsdp=256, splash attention", None),
        ("torchprime", "flash (not yet splash) attention", "pallas"),
        ("torchprime", "attention kernel not passed", "pallas"),
        ("maxtext", "attention kernel not passed", None),
    ],
)
def test_first_pallas_kernel(framework: str, notes: str, kernel: str | None) -> None:
    assert kernel_said(Run({"framework": framework, "notes": notes, "attention": "flash"}, 1)) == kernel


def test_splash_attention_saves_what_was_measured() -> None:
    """2.735 s with JAX's first kernel, 2.407 s with splash attention."""
    seconds = [seconds_of(setup_of(Run({**ROW, "notes": notes}, 1))) for notes in ("", "splash attention")]
    assert seconds[0] - seconds[1] == pytest.approx(2.735 - 2.407, rel=0.15)
