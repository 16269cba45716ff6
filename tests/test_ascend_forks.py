"""Megatron's forks for Ascend: what they composed of plain operations before they had kernels for it."""

from __future__ import annotations

import pytest

from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run

ROW = {"id": "x", "year": "2023", "model": "llama-7b", "gpu": "ascend-910b", "n_gpus": "8", "tp": "1", "pp": "1",
       "zero_stage": "2", "seq_len": "2048", "micro_batch": "2", "global_batch": "64", "precision": "fp16",
       "attention": "flash", "recompute": "none", "framework": "megatron-deepspeed"}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "kernels"),
    [
        ({}, ("eager", "eager", "eager")), ({"framework": "mindspeed-llm"}, ("eager", "eager", "eager")),
        ({"year": "2024"}, ("fused", "fused", "fused")), ({"gpu": "a100-sxm4-80gb"}, ("fused", "fused", "fused")),
    ],
)  # fmt: skip
def test_layers_were_composed_until_2024(cells: dict[str, str], kernels: tuple[str, str, str]) -> None:
    """Ascend/AscendSpeed, model/llama_model.py of 2023."""
    own = setup_of(Run({**ROW, **cells}, 1)).kernels
    assert (own.norm, own.rope, own.activation) == kernels
