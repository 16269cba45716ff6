"""Orders told by what repeats in them: the same orders, times, peaks and charts as those written out in full."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pytest import MonkeyPatch
from shell import piped

import distsim
from distsim.engine.pipeline import pipeline
from distsim.engine.steps.passes import Pass, Segment
from distsim.engine.steps.timeline import timeline_of
from distsim.engine.timelines.simulation import Pipeline
from distsim.report import pipeline_text
from distsim.report.gantt import Scale, Shares, spread
from distsim.schedules import repeats, split_passes
from distsim.schedules.registry import SCHEDULES, build
from distsim.schedules.repeats import Repeats, further
from distsim.schedules.split_passes import Times
from distsim.schedules.zb_auto import order

ALL_FORWARDS_FIRST = ("gpipe", "looped-bfs")
NEVER = 10**12


@contextmanager
def told(monkeypatch: MonkeyPatch, least: int) -> Iterator[None]:
    """Orders of so many actions are told by what repeats in them."""
    with monkeypatch.context() as patch:
        patch.setattr(repeats, "MANY_ACTIONS", least)
        for name in ("MANY", "FEWER"):
            patch.setattr(split_passes, name, getattr(split_passes, name) if least < NEVER else NEVER)
        yield


def chunks_of(name: str, some: int) -> int | None:
    return some if SCHEDULES[name].most is None else None


def test_repeats_reads_like_its_list() -> None:
    actions = Repeats([("F", 0, 0)], [("F", 0, 1), ("B", 0, 0)], 3, [("B", 0, 1)], 1, further)
    full = [("F", 0, 0), *(one for i in range(2, 5) for one in (("F", 0, i), ("B", 0, i - 1))), ("B", 0, 4)]
    assert list(actions) == full and actions == full and len(actions) == len(full)
    assert [actions[at] for at in range(len(full))] == full
    assert actions[-1] == full[-1] and actions[2:7:2] == full[2:7:2] and actions[3:] == full[3:]
    assert actions.short() == [("F", 0, 0), ("B", 0, 1)]
    with pytest.raises(IndexError):
        actions[len(full)]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", [2, 4, 6])
def test_orders_are_the_same(name: str, stages: int, monkeypatch: MonkeyPatch) -> None:
    """A further round of micro-batches is one more block for every stage, of every schedule but two."""
    whole = SCHEDULES[name].placement == "bidirectional" or SCHEDULES[name].most is None
    for rounds, rest in ((17, 0), (18, 0 if whole else 1), (31, 0 if whole else stages - 1)):
        shape = name, stages, rounds * stages + rest, chunks_of(name, 4)
        with told(monkeypatch, NEVER):
            full = build(*shape).orders
        with told(monkeypatch, 0):
            short = build(*shape).orders
        assert [list(one) for one in short] == full
        assert isinstance(short[0], Repeats) == (name not in ALL_FORWARDS_FIRST)


def runs(monkeypatch: MonkeyPatch, **given: Any) -> tuple[Pipeline, Pipeline]:
    """The same pipeline simulated action by action, and until it settles."""
    with told(monkeypatch, NEVER):
        full = pipeline(**given)
    with told(monkeypatch, 0):
        return full, pipeline(**given)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "zb-auto"])
@pytest.mark.parametrize("uneven", [False, True])
def test_times_are_the_same(name: str, uneven: bool, monkeypatch: MonkeyPatch) -> None:
    draw = random.Random(f"{name}{uneven}")
    given: dict[str, Any] = {"stages": 4, "micro": 4 * 40, "schedule": name, "chunks": chunks_of(name, 2)}
    for kind in ("forward", "input_gradient", "weight_gradient"):
        given[kind] = [draw.uniform(0.5, 1.5) for _ in range(4)] if uneven else draw.uniform(0.5, 1.5)
    full, short = runs(monkeypatch, **given, hop=0.1, loss=0.3, optimizer=2.0)
    assert short.actions == tuple(
        one._replace(start=pytest.approx(one.start, abs=1e-7), end=pytest.approx(one.end, abs=1e-7))
        for one in full.actions
    )
    assert short.makespan == pytest.approx(full.makespan, rel=1e-11)
    assert short.busy == pytest.approx(full.busy, rel=1e-11)
    for field in ("peak_in_flight", "peak_until_weight_gradient", "weight_versions", "micro"):
        assert getattr(short, field) == getattr(full, field)
    if name not in ALL_FORWARDS_FIRST:
        assert isinstance(short.timeline.starts[0], Repeats)


@pytest.mark.parametrize("transfers", [{"contention": True}, {"overlap": False}, {"p2p": "rendezvous"}])
def test_other_transfers_are_the_same(transfers: dict[str, Any], monkeypatch: MonkeyPatch) -> None:
    """Links that remember more than starts show are simulated to the end."""
    given = {"stages": 4, "micro": 200, "forward": [1.0, 1.3, 0.9, 1.1], "hop": 0.4, **transfers}
    full, short = runs(monkeypatch, **given)
    assert short.makespan == pytest.approx(full.makespan, rel=1e-11)
    for one, other in zip(short.timeline.starts, full.timeline.starts, strict=True):
        assert list(one) == pytest.approx(list(other), rel=1e-10)


def test_slow_settling_is_walked_through(monkeypatch: MonkeyPatch) -> None:
    """Two stages that are almost as slow as each other take longer to settle than is waited for."""
    given: dict[str, Any] = {"stages": 4, "micro": 400, "forward": [1, 1 + 1e-7, 1, 1.1], "backward": [2, 2, 2, 1.9]}
    full, short = runs(monkeypatch, **given)
    assert short.makespan == pytest.approx(full.makespan, rel=1e-12)


def whole_times(draw: random.Random, stages: int) -> Times:
    """Times whose sums are exact, so that no rounding decides what comes first."""
    base = [8 * draw.randrange(5, 40) for _ in range(3)]
    uneven = draw.random() < 0.6
    each = [[one + (draw.choice((0, draw.randrange(-12, 13))) if uneven else 0) for _ in range(stages)] for one in base]
    return Times(*each, draw.choice((0, 0, 5)))


@pytest.mark.parametrize("seed", range(20))
def test_found_orders_are_the_same(seed: int, monkeypatch: MonkeyPatch) -> None:
    draw = random.Random(seed)
    loops = 0
    for _ in range(5):
        stages = draw.choice((2, 3, 4, 6))
        micro = stages * draw.randrange(17, 60) + draw.randrange(stages)
        shape = stages, micro, 1, draw.choice((None, stages, 3 * stages, 1)), whole_times(draw, stages)
        found = order(*shape)
        with told(monkeypatch, NEVER):
            full = order(*shape)
        assert [list(one) for one in found] == full
        loops += isinstance(found[0], Repeats)
    assert loops


@pytest.mark.parametrize("apart", [1.0, 1.7, 4.2])
def test_spread_once_for_all(apart: float) -> None:
    at = Scale(37, 37 / 50, True)
    one_by_one: Shares = {}
    together: Shares = {}
    for turn in range(9):
        spread(one_by_one, ("forward", "-"), 2.3 + turn * apart, 3.3 + turn * apart, at)
    spread(together, ("forward", "-"), 2.3, 3.3, at, 9, apart)
    assert {column: share["forward", "-"] for column, share in together.items()} == pytest.approx(
        {column: share["forward", "-"] for column, share in one_by_one.items()}
    )


def test_turns_in_a_window() -> None:
    told_once = Pass("F", 0, 3, 10.0, 11.0, 5, 2.0, 1)
    each = [told_once.turn(turn) for turn in range(5)]
    assert [(one.micro, one.begin, one.end) for one in each] == [(3 + i, 10.0 + 2 * i, 11.0 + 2 * i) for i in range(5)]
    draw = random.Random(0)
    for _ in range(500):
        begin, end = sorted((draw.uniform(5, 25), draw.uniform(5, 25)))
        touched = [turn for turn, one in enumerate(each) if one.end > begin and one.begin < end]
        assert list(range(*told_once.turns(begin, end))) == touched


def test_charts_are_the_same(monkeypatch: MonkeyPatch) -> None:
    for name in ("1f1b", "zb-h1", "interleaved-1f1b"):
        full, short = runs(monkeypatch, stages=4, micro=400, schedule=name, chunks=chunks_of(name, 2), forward=1.137)
        for width in (80, 140):
            lines = [["".join(span.text for span in line) for line in pipeline_text.page(one, width)]
                     for one in (full, short)]  # fmt: skip
            assert len(lines[0]) == len(lines[1])
            off = sum(a != b for one, other in zip(*lines, strict=True) for a, b in zip(one, other, strict=True))
            assert off <= 0.02 * sum(map(len, lines[0]))  # columns that owe two kinds as much show either


def test_a_million_micro_batches_are_drawn_at_once(monkeypatch: MonkeyPatch) -> None:
    """Only what a stage does until it settles is kept."""
    run = pipeline(stages=2, micro=1_000_000, forward=1.0, backward=2.0)
    assert run.makespan == 3.0 * 1_000_001 and run.bubble_fraction == pytest.approx(1 / 1_000_001)
    assert all(isinstance(one, Repeats) and len(one.head) < 1000 for one in run.parts.orders)
    assert pipeline_text.page(run, 80)


def where(segment: Segment) -> tuple[Any, ...]:
    return round(segment.start, 7), segment.stream, segment.name, segment.micro


def test_a_window_names_only_what_is_in_it() -> None:
    """Of a step of very many passes, drawn pass by pass, the legend once had what comes after all of them."""
    asked = ("step", "llama-7b", "--gpu", "h100-sxm", "--gpus", "4", "--pp", "4", "--global-batch", "60000", "--gantt")
    part = piped(*asked, "--from", "10s", "--to", "12s").stdout
    assert "forward" in part and "optimizer" not in part.split("Step timeline")[1]
    assert "optimizer" in piped(*asked).stdout.split("Step timeline")[1]


def test_a_step_tells_the_same_segments(monkeypatch: MonkeyPatch) -> None:
    job = distsim.Job(model="llama-7b", gpu="h100-sxm", gpus=4, pp=4, global_batch=160)
    with told(monkeypatch, NEVER):
        full = timeline_of(distsim.step(job))
    with told(monkeypatch, 0):
        short = timeline_of(distsim.step(job))
    for stage in range(4):
        for window in ((0.0, full.seconds), (full.seconds / 3, full.seconds / 2)):
            one, other = (list(step.segments(stage, *window)) for step in (full, short))
            assert len(one) == len(other)
            assert sorted(map(where, one)) == sorted(map(where, other))
        busy = sum(seg.end - seg.start for seg in full.segments(stage))
        assert sum((seg.end - seg.start) * times for seg, times, _ in short.repeated(stage)) == pytest.approx(busy)
