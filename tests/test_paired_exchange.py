"""Schedules that run a forward and a backward in one block hide expert exchanges behind computation."""

from __future__ import annotations

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
