"""Weights that Megatron copies to its distributed optimizer's buffers."""

from __future__ import annotations

import pytest

import distsim
from distsim.engine.footprint.built import BUILT
from distsim.engine.runs.setup import setup_of
from distsim.formulas.states import building_bytes
from distsim.interop.runs import Run

JOB = {"gpu": "h100-sxm", "framework": "megatron-core", "gpus": 8, "tp": 8, "seq": 4096, "zero": 1,
       "precision": "bf16-fp32-grads", "recompute": "full"}  # fmt: skip


def test_dense_weights_and_experts() -> None:
    assert building_bytes(100, 0, 2, 4, 1) == 8 * 100
    assert building_bytes(0, 100, 2, 4, 1) == 8 * 100
    assert building_bytes(100, 0, 2, 4, 4) == 6.5 * 100  # one chunk of four
    assert building_bytes(10, 100, 2, 4, 1) == 6 * 110 + 2 * 100  # experts come last


def test_the_peak_of_a_job_whose_optimizer_is_on_the_host() -> None:
    moved = distsim.memory("qwen2.5-72b", **JOB, offload="optimizer").worst
    assert moved.peak_moment == BUILT
    elements = moved.states.dense_parameters
    built = next(one for one in moved.moments if one.name == BUILT)
    assert moved.at(built) == pytest.approx(8 * elements, rel=0.01)


@pytest.mark.parametrize("more", [{"zero": 0}, {"lora_rank": 8}])
def test_no_buffers_no_copies(more: dict[str, int]) -> None:
    report = distsim.memory("llama-3-8b", **{**JOB, **more}).worst
    assert BUILT not in {one.name for one in report.moments}


def test_older_software_kept_both_in_one() -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "4096", "micro_batch": "1",
             "global_batch": "8", "framework": "megatron-core"}  # fmt: skip
    held = [setup_of(Run({**cells, "year": year}, 1)).kernels.weights_built_apart for year in ("2023", "2025")]
    assert held == [False, True]
