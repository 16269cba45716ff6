"""What holds for every schedule, whatever its size and times."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import distsim
from distsim.engine.timelines import order_check
from distsim.errors import DistsimError
from distsim.formulas import bubbles
from distsim.schedules import registry

NAMES = sorted(registry.SCHEDULES)
SECONDS = st.sampled_from([0.25, 0.5, 1.0, 1.3, 2.0])


def run(*args: Any, **options: Any) -> Any:
    """The simulated schedule; sizes that it refuses are skipped."""
    try:
        return distsim.pipeline(*args, **options)
    except DistsimError:
        assume(False)


@st.composite
def reports(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(NAMES))
    kind = registry.find(name)
    chunks = kind.least if kind.most is not None else draw(st.integers(kind.least, 4))
    stages = draw(st.integers(1, 7))
    options = {key: draw(SECONDS) for key in ("forward", "input_gradient", "weight_gradient")}
    options["hop"] = draw(st.sampled_from([0.0, 0.1, 1.7]))
    options["p2p"] = draw(st.sampled_from(["async", "rendezvous"]))
    return run(stages, draw(st.integers(1, 20)), name, chunks, **options)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports())
def test_every_schedule_is_complete_and_keeps_its_dependencies(report: Any) -> None:
    assert order_check.check_complete(report.parts, report.micro) == report.micro
    ends: dict[tuple[str, int, int], tuple[float, float]] = {}
    per_stage: dict[int, list[tuple[float, float]]] = {}
    for action in report.actions:
        per_stage.setdefault(action.stage, []).append((action.start, action.end))
        ends[action.kind[0], action.chunk, action.micro] = (action.start, action.end)
        if action.kind == "FB":
            ends["B", action.backward_chunk, action.backward_micro] = (action.start, action.end)
    for spans in per_stage.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    for chain in report.parts.chains:
        micro = max(i for kind, chunk, i in ends if chunk == chain[0]) + 1
        for i in range(micro):
            back = [ends.get(("B", chunk, i)) or ends["I", chunk, i] for chunk in chain]
            ahead = [ends["F", chunk, i] for chunk in chain]
            line = ahead + back[::-1]
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(line))
            assert all(ends["W", c, i][0] >= ends["I", c, i][1] - 1e-9 for c in chain if ("W", c, i) in ends)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports())
def test_work_is_conserved_and_parts_sum_to_the_whole(report: Any) -> None:
    work = sum(action.end - action.start for action in report.actions)
    assert sum(report.busy) == pytest.approx(work)
    assert [a + b for a, b in zip(report.idle, report.busy, strict=True)] == pytest.approx(
        [report.makespan] * report.stages
    )
    assert report.bubble_fraction == pytest.approx(sum(report.idle) / (report.stages * report.makespan))
    assert report.makespan == pytest.approx(max(action.end for action in report.actions))
    assert min(action.start for action in report.actions) == 0


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 8), st.integers(1, 30), SECONDS, SECONDS)
def test_more_micro_batches_never_raise_the_bubble(
    name: str, stages: int, micro: int, forward: float, backward: float
) -> None:
    few, more = (
        distsim.pipeline(stages, m, name, forward=forward, backward=backward).bubble_fraction
        for m in (micro, micro + 1)
    )
    assert more <= few + 1e-12


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 8), st.integers(1, 24), st.integers(1, 4))
def test_peaks_match_their_closed_forms(stages: int, micro: int, chunks: int) -> None:
    per_stage = [bubbles.one_f_one_b_peak(stages, micro, stage) for stage in range(stages)]
    assert list(distsim.pipeline(stages, micro, "1f1b").peak_in_flight) == per_stage
    assert list(distsim.pipeline(stages, micro, "zb-h1").peak_in_flight) == per_stage
    assert set(distsim.pipeline(stages, micro, "zb-h1").peak_until_weight_gradient) == {min(micro, stages)}
    assert set(distsim.pipeline(stages, micro, "gpipe").peak_in_flight) == {bubbles.all_forwards_peak(stages, micro)}
    assert set(distsim.pipeline(stages, micro, "looped-bfs", chunks).peak_in_flight) == {micro}
    if micro % stages == 0:
        report = distsim.pipeline(stages, micro, "interleaved-1f1b", chunks)
        expected = [bubbles.interleaved_peak(stages, micro, chunks, stages, stage) for stage in range(stages)]
        assert list(report.peak_in_flight) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 16), st.integers(1, 14), st.sampled_from((1.0, 0.4)))
def test_zb_auto_keeps_its_memory_limit(stages: int, micro: int, limit: int, kept: float) -> None:
    report = distsim.pipeline(stages, micro, "zb-auto", memory_limit=limit, weight_memory=kept)
    assert kept < 1 or max(report.peak_until_weight_gradient) <= limit
    for order in report.parts.orders:
        steps = ({"F": 1.0, "I": kept - 1, "W": -kept}[action[0]] for action in order)
        assert max(accumulate(steps)) <= limit + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.lists(SECONDS, min_size=3, max_size=6), st.integers(1, 12), st.data())
def test_gpipe_on_uneven_stages(forward: list[float], micro: int, data: st.DataObject) -> None:
    backward = data.draw(st.lists(SECONDS, min_size=len(forward), max_size=len(forward)))
    report = distsim.pipeline(len(forward), micro, "gpipe", forward=forward, backward=backward)
    expected = sum(forward) + sum(backward) + (micro - 1) * (max(forward) + max(backward))
    assert report.makespan == pytest.approx(expected)


def test_slower_transfers_never_help_and_blocking_costs_more() -> None:
    for name in ("1f1b", "zb-v", "dualpipe", "chimera"):
        extra: list[dict[str, Any]] = [{"hop": 0}, {}, {"contention": True}, {"overlap": False}]
        spans = [distsim.pipeline(4, 8, name, **{"hop": 0.2, **one}).makespan for one in extra]
        assert spans[0] < spans[1] <= spans[2] and spans[1] < spans[3]


def test_contention_serialises_what_shares_a_link() -> None:
    """Two chunks' forwards leave stage 0 every half second, but its link takes a second for each."""
    free, taken = (
        distsim.pipeline(2, 8, "looped-bfs", forward=1, backward=0, hop=1, contention=busy).makespan
        for busy in (False, True)
    )
    assert taken > free


def test_optimizer_step_and_its_synchronisation() -> None:
    plain = distsim.pipeline(4, 8)
    together = distsim.pipeline(4, 8, optimizer=2, optimizer_sync=0.5)
    alone = distsim.pipeline(4, 8, optimizer=2, optimizer_sync=None)
    assert together.makespan == plain.makespan + 2.5
    assert alone.makespan == plain.makespan + 2
    assert sum(action.kind == "O" for action in alone.actions) == 4
    assert alone.span_bubble_fraction < together.span_bubble_fraction


def test_an_order_may_be_one_text() -> None:
    assert distsim.pipeline(order="0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", forward=1, backward=2).makespan == 9


def test_a_hundred_thousand_actions_take_no_second() -> None:
    begin = time.process_time()
    report = distsim.pipeline(64, 1024)
    assert report.makespan == (1024 + 63) * 3
    assert time.process_time() - begin < 1.0  # a fifth of this is usual


def test_simulation_needs_no_heavy_library() -> None:
    code = (
        "import sys, distsim; distsim.pipeline(4, 8).to_dict();"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'rich', 'pydantic', 'typer')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_loss_lengthens_the_last_forward_only() -> None:
    assert distsim.pipeline(4, 1, loss=0.5).makespan == distsim.pipeline(4, 1).makespan + 0.5


def test_links_are_joined_in_order_and_wrap_around() -> None:
    assert distsim.pipeline(3, 1, hop=[1, 10, 100]).makespan == 9 + 2 * 11
    assert distsim.pipeline(3, 1, "looped-bfs", 2, hop=[1, 10, 100]).makespan == 9 + 2 * (2 * 11 + 100)
    assert distsim.pipeline(2, 1, "looped-bfs", 2, hop=[1, 100]).makespan == 6 + 2 * 3


def test_a_fused_block_waits_for_the_longer_of_its_transfers() -> None:
    """Under rendezvous a transfer begins when both ends are ready, and what needs it when it is there."""
    hops = [0.5, 0.25, 0.125, 0.0625]
    found = distsim.pipeline(4, 8, "interleaved-1f1b-overlap", 2, forward=1.0, backward=2.0, hop=hops, p2p="rendezvous")
    done: dict[tuple[str, int, int | None], Any] = {}
    for one in found.actions:
        if one.kind != "B":
            done["F", one.chunk, one.micro] = one
        if one.kind == "FB":
            done["B", one.backward_chunk or 0, one.backward_micro] = one
        elif one.kind == "B":
            done["B", one.chunk, one.micro] = one
    for kind, order in (("F", range(8)), ("B", range(7, -1, -1))):
        for before, after in pairwise(order):
            for micro in range(8):
                first, then = done[kind, before, micro], done[kind, after, micro]
                own = [one.end for one in found.actions if one.stage == then.stage and one.end <= then.start]
                low, high = sorted((first.stage, then.stage))
                delay = hops[3] if high - low == 3 else hops[low]
                assert then.start >= max([first.end, *own]) + delay - 1e-9


def test_transfers_of_a_pair_do_not_wait_for_each_other() -> None:
    """Stage 1 reaches its pair at 4: the forward takes its slow link from then to 6, the backward, sent at 7.5, its
    fast one to 8."""
    order = ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B0) 1B1", "2F0 2B0 2F1 2B1"]
    found = distsim.pipeline(order=order, forward=1, backward=2, hop=[2, 0.5], p2p="rendezvous")
    assert [one.start for one in found.actions if one.kind == "FB"] == [8]
    assert found.makespan == 21
