"""The schedule of a job and its model chunks: names are checked even where they have no effect, chunks follow."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.layouts.bounds import parse_bound
from distsim.engine.pipeline import pipeline
from distsim.engine.steps.simulated import simulated_seconds
from distsim.errors import DistsimError
from distsim.specs.job import Job


def setup(**options: Any) -> Setup:
    return resolve(Job(**{"model": "llama-3-8b", "gpus": 8, "pp": 4, "global_batch": 64, **options}))


@pytest.mark.parametrize("schedule", ["zb-v", "v-half", "v-min", "1f1b-v", "dualpipe-v", "hanayo", "ZB_V"])
def test_a_v_has_two_chunks(schedule: str) -> None:
    left_open, stated = setup(schedule=schedule), setup(schedule=schedule, vpp=2)
    assert left_open.layout == stated.layout
    assert left_open.chunk_layers == (4,) * 8
    assert any("--vpp not given: using 2" in note for note in left_open.notes)
    assert not stated.notes


@pytest.mark.parametrize(("schedule", "vpp"), [("zb-v", 1), ("zb-v", 4), ("1f1b", 2), ("hanayo", 1), ("dualpipe", 2)])
def test_chunks_that_a_schedule_cannot_take(schedule: str, vpp: int) -> None:
    with pytest.raises(DistsimError, match=f"schedule {schedule} cannot take {vpp} chunks? per stage"):
        setup(schedule=schedule, vpp=vpp)


SEVERAL = ("interleaved-1f1b", "looped-bfs", "interleaved-zb")


@pytest.mark.parametrize("schedule", SEVERAL)
def test_what_interleaves_has_two_chunks_unless_one_is_stated(schedule: str) -> None:
    left_open, one = setup(schedule=schedule), setup(schedule=schedule, vpp=1)
    assert left_open.layout == setup(schedule=schedule, vpp=2).layout
    assert any("--vpp not given: using 2" in note for note in left_open.notes)
    assert one.layout.vpp == 1
    assert any("--vpp 2" in note for note in one.notes)


def test_layers_that_make_no_two_chunks_stay_in_one() -> None:
    odd = setup(schedule="interleaved-1f1b", framework="torchtitan", stage_layers="9,9,7,7")
    assert odd.layout.vpp == 1 and odd.chunk_layers == (9, 9, 7, 7)
    assert any("do not divide into 8 chunks" in note for note in odd.notes)


@pytest.mark.parametrize("vpp", [None, 1, 2])
@pytest.mark.parametrize("schedule", SEVERAL)
def test_all_readers_mean_the_same_chunks(schedule: str, vpp: int | None) -> None:
    """Composed, simulated and sent for as many chunks as the job says, one too."""
    job = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 4, "pp": 4, "global_batch": 8, "schedule": schedule,
           "vpp": vpp, "seq": 2048}  # fmt: skip
    report, chunks = distsim.step(**job), vpp or 2
    assert report.to_dict()["job"]["vpp"] == chunks
    assert simulated_seconds(report) == pytest.approx(report.seconds, rel=0.02)
    sends = [row for row in distsim.comm(**job).collectives if row.op == "send_recv"]
    assert {row.calls for row in sends} == {8 * chunks}
    run = distsim.pipeline(stages=4, micro=8, schedule=schedule, chunks=chunks)
    held = [stage.in_flight for stage in build_stages(report.setup)]
    assert held == list(run.peak_in_flight)


@pytest.mark.parametrize("pp", [1, 4])
def test_unknown_schedules_are_refused_also_without_a_pipeline(pp: int) -> None:
    with pytest.raises(DistsimError, match="unknown pipeline schedule '1f2b'") as caught:
        setup(schedule="1f2b", pp=pp)
    assert any("did you mean 1f1b" in hint for hint in caught.value.hints)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("GPipe", "gpipe"),
        ("afab", "gpipe"),
        ("1F1B", "1f1b"),
        ("Interleaved1F1B", "interleaved-1f1b"),
        ("LoopedBFS", "looped-bfs"),
        ("InterleavedZeroBubble", "interleaved-zb"),
        ("ZBVZeroBubble", "zb-v"),
        ("DualPipeV", "dualpipe-v"),
        ("FThenB", "gpipe"),
        ("breadth_first", "looped-bfs"),
        ("zbv", "zb-v"),
    ],
)
def test_names_of_others_are_taken(theirs: str, ours: str) -> None:
    assert setup(schedule=theirs).layout == setup(schedule=ours).layout
    assert pipeline(stages=4, micro=8, schedule=theirs).schedule == ours
    assert parse_bound("schedule", f"{theirs},zb-h1").words == (ours, "zb-h1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("zb-1p", "did you mean zb-h1, or zb-auto"),
        ("BitPipe", "both directions"),
        ("seq1f1b", "a micro-batch per slice"),
    ],
)
def test_published_schedules_without_a_name_are_told_of(name: str, told: str) -> None:
    """Not answered with the nearest letters, which made GPipe of BitPipe."""
    for ask in (lambda: pipeline(4, 8, name), lambda: parse_bound("schedule", name)):
        with pytest.raises(DistsimError, match="(?i)" + name) as caught:
            ask()
        assert any(told in hint for hint in caught.value.hints)
        assert not any("gpipe?" in hint for hint in caught.value.hints)


@pytest.mark.parametrize(("pp", "vpp", "micro"), [(4, 2, 9), (4, 2, 7), (2, 2, 5), (4, 2, 11)])
def test_micro_batches_that_stages_do_not_divide_run_in_megatrons_groups(pp: int, vpp: int, micro: int) -> None:
    job = {"model": "llama-7b", "gpu": "h100-sxm", "framework": "megatron-core", "seq": 2048}
    report = distsim.step(**job, gpus=8 * pp, pp=pp, vpp=vpp, global_batch=8 * micro)
    seconds = simulated_seconds(report)  # with the output layer in one chunk, up to 2% longer than in all of a stage's
    assert seconds is not None and 1 <= seconds / report.seconds < 1.02
    assert report.to_dict()["seconds"] == report.seconds


@pytest.mark.parametrize("name", ["interleaved-1f1b-megatron", "interleaved-1f1b-overlap"])
def test_a_step_finds_the_groups_of_micro_batches_that_stages_do_not_divide(name: str) -> None:
    """Six over four stages are one group, as Megatron must be told; a step has no option for it."""
    job: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "pp": 4, "vpp": 2, "global_batch": 12}
    usual, named = distsim.step(**job, schedule="interleaved-1f1b"), distsim.step(**job, schedule=name)
    assert named.seconds == pytest.approx(usual.seconds, rel=0.03)
    assert named.memory.peak == pytest.approx(usual.memory.peak, rel=0.02)
