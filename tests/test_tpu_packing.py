"""Splash attention on TPUs masks packed samples inside of blocks that it computes anyway."""

from __future__ import annotations

import pytest

import distsim


@pytest.mark.parametrize("sample", [16, 64, 512, 2048])
def test_packing_changes_nothing_on_tpus(sample: int) -> None:
    job = {"model": "llama-3-8b", "gpu": "tpu-v5p", "gpus": 1, "framework": "maxtext", "seq": 4096}
    assert distsim.step(**job, sample_tokens=sample).seconds == distsim.step(**job).seconds


def test_it_saves_attention_where_kernels_read_lengths() -> None:
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "framework": "nemo", "seq": 16384}
    assert distsim.step(**job, sample_tokens=1024).seconds < 0.95 * distsim.step(**job).seconds
