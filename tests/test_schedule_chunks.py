"""The schedule of a job and its model chunks: names are checked even where they have no effect, chunks follow."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.layouts.bounds import parse_bound
from distsim.engine.pipeline import pipeline
from distsim.errors import DistsimError
from distsim.specs.job import Job


def setup(**options: Any) -> Setup:
    return resolve(Job(**{"model": "llama-3-8b", "gpus": 8, "pp": 4, "global_batch": 64, **options}))


@pytest.mark.parametrize("schedule", ["zb-v", "v-half", "v-min", "1f1b-v", "dualpipe-v", "hanayo", "ZB_V"])
def test_a_v_has_two_chunks(schedule: str) -> None:
    left_open, stated = setup(schedule=schedule), setup(schedule=schedule, vpp=2)
    assert left_open.layout == stated.layout
    assert left_open.chunk_layers == (4,) * 8
    assert any("--vpp not given: 2 taken" in note for note in left_open.notes)
    assert not stated.notes


@pytest.mark.parametrize(("schedule", "vpp"), [("zb-v", 1), ("zb-v", 4), ("1f1b", 2), ("hanayo", 1), ("dualpipe", 2)])
def test_chunks_that_a_schedule_cannot_take(schedule: str, vpp: int) -> None:
    with pytest.raises(DistsimError, match=f"schedule {schedule} cannot take {vpp} chunks? per stage"):
        setup(schedule=schedule, vpp=vpp)


def test_interleaving_one_chunk_is_told() -> None:
    one = setup(schedule="interleaved-1f1b")
    assert one.layout.vpp == 1
    assert any("--vpp 2" in note for note in one.notes)


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
    ],
)
def test_names_of_torch_and_nanotron_are_taken(theirs: str, ours: str) -> None:
    assert setup(schedule=theirs).layout == setup(schedule=ours).layout
    assert pipeline(stages=4, micro=8, schedule=theirs).schedule == ours
    assert parse_bound("schedule", f"{theirs},zb-h1").words == (ours, "zb-h1")
