"""Keys and values of a ring's next step travel beside the attention of this one."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.jobs.resolve import resolve
from distsim.engine.steps.beside import behind_first, beside_attention
from distsim.engine.steps.report import StepReport
from distsim.specs.job import Job

LONG: dict[str, Any] = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm",
    "gpus": 32,
    "cp": 8,
    "tp": 4,
    "zero": 1,
    "seq": 131_072,
}
TIMING = {"attention": 0.5, "exposed_fraction": 0.25}
STAGE = {"forward.attention": 2.0, "backward.attention": 5.0, "recompute.attention": 0.0}


def exposed(report: StepReport) -> float:
    return float(report.breakdown["context_parallel"])


def priced(**job: Any) -> float:
    rows = distsim.comm(**job).collectives
    return sum(float(row.seconds) for row in rows if row.group == "cp" and row.phase != "step")


def test_what_hides_is_bounded_by_attention_and_by_what_always_shows() -> None:
    """Four ranks attend in four steps, of which three have something to wait for."""
    y = {"ring": 3 / 4}
    assert beside_attention([1.0, 2.0], STAGE, y, TIMING) == pytest.approx([0.25, 0.5])
    assert beside_attention([10.0, 2.0], STAGE, y, TIMING) == pytest.approx([10.0 - 0.75 * 3.0, 0.5])
    again = {**STAGE, "backward.attention": 0.0, "recompute.attention": 2.0}
    assert beside_attention([0.0, 10.0], again, y, TIMING) == pytest.approx([0.0, 10.0 - 0.75 * 3.0])


def test_other_modes_wait() -> None:
    assert beside_attention([1.0, 2.0], STAGE, {"ring": 0.0}, TIMING) == [1.0, 2.0]
    job = {**LONG, "framework": "torchtitan", "zero": 3}
    whole = distsim.step(**job)
    assert whole.setup.layout.cp_mode == "all_gather"
    assert exposed(whole) > 0.8 * priced(**job)


def test_long_rings_hide_most_and_short_ones_little() -> None:
    other = {**LONG, "seq": 16_384, "micro_batch": 8}
    long, short = (exposed(distsim.step(**job)) / priced(**job) for job in (LONG, other))
    assert long < 0.5 < short


def test_step_and_comm_agree_that_a_long_ring_hides() -> None:
    rows = [row for row in distsim.comm(**LONG).collectives if row.group == "cp" and row.phase != "step"]
    assert sum(float(row.exposed_seconds) for row in rows) < 0.1 * priced(**LONG)


def test_the_explanation_has_the_ring_beside_attention() -> None:
    """What hides, and the share that is lost all the same, are figures of their own: both add up to the step's."""
    from distsim.engine.steps.figures import sections

    report = distsim.step(**LONG)
    told = {one.label: one for part in sections(report) for one in part.figures}
    whole = 0.0
    for phase in ("forward", "backward"):
        left, added = (told[f"context parallel, {phase}{more}"] for more in (", left beside the ring's attention", ""))
        hides = left.arguments
        assert hides["compute_seconds"] > hides["exchange_seconds"], "attention is longer than the ring"
        assert left.value == pytest.approx(hides["exchange_seconds"] * hides["exposed_fraction"])
        assert (added.arguments["priced_seconds"], added.arguments["beside_seconds"]) == (0, left.value)
        whole += float(added.value)
    assert whole == pytest.approx(exposed(report), rel=0.01)


def test_the_last_step_of_a_ring_hides_nothing() -> None:
    job = Job(model="llama-3-8b", gpu="h100-sxm", gpus=8, cp=4, seq=8192)
    ring, other = (resolve(job.model_copy(update={"cp_mode": mode})) for mode in ("ring", "all_to_all"))
    assert (behind_first(ring), behind_first(other)) == (3 / 4, 0)
