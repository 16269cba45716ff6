"""Chips whose kernels share one queue: what they exchange runs before or after what they compute, never beside it."""

from __future__ import annotations

import pytest

from distsim.engine.fitting.fit import EXPOSED, Factors
from distsim.engine.fitting.table import example_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import step_of
from distsim.engine.steps.breakdown import breakdown_of, one_queue, timing_of
from distsim.engine.steps.compose import stage_numbers
from distsim.interop.runs import Run
from distsim.specs.job import Job
from distsim.specs.timing import Timing

JOB = {"model": "llama-3-8b", "gpu": "max-1550-stack", "gpus": 24, "zero": 3, "framework": "torchtitan", "seq": 8192,
       "recompute": "full"}  # fmt: skip
ROW = {"id": "a", "model": "llama-3-8b", "seq_len": "8192", "gpu": "max-1550-stack", "n_gpus": "24", "micro_batch": "1",
       "global_batch": "24", "zero_stage": "3", "framework": "torchtitan", "precision": "bf16"}  # fmt: skip


def test_nothing_hides_what_such_chips_exchange() -> None:
    setup = resolve(Job.read(JOB))
    report = step_of(setup)
    numbers = stage_numbers(report.work)[0]
    timing = timing_of(setup)
    sent = (numbers["gather_forward"] + numbers["gather_backward"]) * timing.gather_factor
    sent += numbers["reduce_each"] * timing.data_factor
    assert one_queue(setup) and timing.exposed_fraction == 1
    assert report.breakdown["data_parallel"] == pytest.approx(float(sent), rel=0.01)


def test_others_hide_most_of_it() -> None:
    setup = resolve(Job.read({**JOB, "gpu": "h100-sxm", "gpus": 16, "micro_batch": 2}))
    report = step_of(setup)
    in_turn = Timing(**{**timing_of(setup).model_dump(), EXPOSED: 1.0})
    assert not one_queue(setup)
    assert report.breakdown["data_parallel"] < 0.6 * breakdown_of(report.work, in_turn)["data_parallel"]


def test_a_fit_to_runs_on_such_chips_moves_nothing_of_it() -> None:
    """No factor of a framework or an architecture makes exchanges hide there."""
    setup = setup_of(Run(ROW, 2))
    one = example_of(setup, 3.0, "a", "somebody", 2026.0)
    factors = Factors([one])
    vector = [-0.5 if name == EXPOSED else 0.0 for _, _, name in factors.keys]
    assert factors.timing(vector, factors.index([one]), [one])[EXPOSED].tolist() == [1.0]


@pytest.mark.parametrize(
    ("notes", "kernel"), [("torch 2.10", "eager"), ("PyTorch 2.8.0", "eager"), ("", "flash"), ("torch 2.13", "flash")]
)
def test_a_release_of_torch_dates_kernels_better_than_the_day_of_a_run(notes: str, kernel: str) -> None:
    """April 2026 follows the release of torch 2.11, whose attention trains on these chips; a run of then may have an
    older one."""
    assert setup_of(Run({**ROW, "year": "2026-04", "notes": notes}, 2)).layout.attention == kernel
