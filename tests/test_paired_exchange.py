"""Schedules that run a forward and a backward in one block hide expert exchanges behind computation."""

from __future__ import annotations

import itertools

import numpy
import pytest

import distsim
from distsim.engine.steps.report import StepReport
from distsim.engine.timelines.schedule_shape import paired

JOB = {
    "model": "deepseek-v2", "gpu": "h800-sxm", "gpus": 512, "pp": 4, "ep": 8, "zero": 1, "global_batch": 4096,
    "seq": 4096,
}  # fmt: skip


def step(schedule: str) -> StepReport:
    return distsim.step(**JOB, schedule=schedule)


def test_expert_exchanges_hide_behind_the_paired_micro_batch() -> None:
    plain, dual = step("zb-h1"), step("dualpipe")
    assert plain.breakdown["expert_parallel"] > 0.1 * plain.seconds
    busy = plain.breakdown["compute"] + plain.breakdown["recompute"]
    left = max(plain.breakdown["expert_parallel"] - busy, 0.0)
    assert dual.breakdown["expert_parallel"] == pytest.approx(left, abs=1e-9)
    assert sum(dual.breakdown.values()) == pytest.approx(dual.seconds)


@pytest.mark.parametrize(
    ("name", "both"), [("1f1b", 0), ("interleaved-1f1b", 0), ("zb-v", 0), ("dualpipe", 1), ("dualpipe-v", 1)]
)
def test_which_schedules_pair(name: str, both: int) -> None:
    assert paired(name, 4) == both
    assert paired(name, 1) == 0


def test_arrays_of_schedules() -> None:
    names = numpy.array(["1f1b", "dualpipe", "1f1b"])
    assert paired(names, 4).tolist() == [0, 1, 0]


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipe-v"])
def test_a_drawn_pipeline_hides_what_a_step_hides(schedule: str) -> None:
    """Drawn times of two directions had held the exchanges in full: DeepSeek-V3 on 16 stages took 43 s beside 27."""
    job = {"model": "deepseek-v2", "gpu": "h800-sxm", "ep": 32, "seq": 4096}
    drawn = distsim.pipeline(stages=4, micro=64, schedule=schedule, **job)
    whole = distsim.step(**job, pp=4, gpus=128, global_batch=32 * 64, schedule=schedule)
    parts = whole.breakdown
    rest = sum(parts[name] for name in ("optimizer", "data_parallel", "other"))
    assert drawn.makespan == pytest.approx(whole.seconds - rest, rel=0.02)
    plain = distsim.pipeline(stages=4, micro=64, schedule="zb-h1", **job)
    assert drawn.makespan < 0.9 * plain.makespan


def test_nothing_hides_beside_an_exchange_that_is_hidden_itself() -> None:
    """Copies of activations take their link as long as they do: chips that compute slower had made steps shorter."""
    job = {
        "model": "qwen3-next-80b-a3b", "gpu": "h200-sxm", "gpus": 128, "pp": 8, "vpp": 2, "cp": 2, "ep": 4, "seq": 8192,
        "micro_batch": 4, "global_batch": 512, "zero": 1, "offload": "activations", "lora_rank": 16,
        "lora_targets": "q,v", "quantize": "nf4", "expert_overlap": True,
    }  # fmt: skip
    seconds = [distsim.step(**job, gpu_power=watts).seconds for watts in (700, 600, 500, 400, 300, 250)]
    assert all(later >= before * (1 - 1e-9) for before, later in itertools.pairwise(seconds)), seconds
