"""Attention of Levanter where Transformer Engine is not installed: composed, whole or by blocks."""

from __future__ import annotations

import pytest

from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run

CELLS = {
    "model": "llama-3.2-1b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "8192", "global_batch": "64",
    "precision": "bf16", "recompute": "full", "framework": "levanter", "year": "2026",
}  # fmt: skip


def replayed(**cells: str) -> Setup:
    return setup_of(Run({**CELLS, **cells}, 1))


@pytest.mark.parametrize(
    ("cells", "attention", "softmax"),
    [
        ({}, "flash", "eager"),
        ({"attention": "jax_flash"}, "eager", "fused"),  # a loop of products and exponentials
        ({"attention": "flash", "notes": "JAX_FLASH attention (no Transformer Engine)"}, "eager", "fused"),
        ({"attention": "eager", "notes": "the fallback reference attention (vanilla)"}, "eager", "fused"),
        ({"attention": "eager"}, "eager", "eager"),
        ({"attention": "eager", "framework": "maxtext", "notes": "vanilla"}, "eager", "eager"),
    ],
)
def test_backends_without_a_kernel(cells: dict[str, str], attention: str, softmax: str) -> None:
    setup = replayed(**cells)
    assert (setup.layout.attention, setup.kernels.softmax) == (attention, softmax)


@pytest.mark.parametrize(
    ("notes", "rope"),
    [
        ("apply_rope_fusion not set", "eager"), ("no fused rotation", "eager"), ("--no-rope-fusion", "eager"),
        ("apply_rope_fusion True", "fused"), ("", "fused"),
    ],
)  # fmt: skip
def test_notes_tell_that_rotation_is_composed(notes: str, rope: str) -> None:
    assert replayed(framework="nemo", tp="1", pp="1", notes=notes).kernels.rope == rope
