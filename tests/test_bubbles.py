"""Closed forms against the event simulation, over the whole range that they claim."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy
import pytest

import distsim
from distsim.errors import DistsimError
from distsim.formulas.schedule_forms import FORMS, PEAKS, SPLIT_FORMS, Form, Setting
from distsim.report.gantt import show_time
from distsim.report.pipeline_text import closed_form
from distsim.schedules import registry

STAGES = (1, 2, 3, 4, 5, 8)
MICRO = (*range(1, 13), 16, 24)
TIMES = ((1.0, 1.0, 1.0), (1.0, 0.5, 0.5), (1.0, 1.2, 0.6), (1.0, 0.8, 1.3), (2.0, 1.0, 0.5), (0.4, 1.0, 2.0))
HOPS = (0.0, 0.1, 0.5, 3.0)


def settings(name: str) -> list[Setting]:
    kind = registry.find(name)
    chunks = (1, 2, 3, 4) if kind.most is None and kind.least == 1 else (kind.least,)
    lengths = [(times, 0.0) for times in TIMES]
    if name in ("naive", "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs"):
        # each of the times with two hops, each hop with three of them
        lengths = [(times, HOPS[(n + more) % len(HOPS)]) for n, times in enumerate(TIMES) for more in (0, n // 4 + 1)]
    return [Setting(p, m, v, *times, hop) for p, m, v, (times, hop) in product(STAGES, MICRO, chunks, lengths)]


def both_rules(test: Any) -> Any:
    """For every closed form, with the rule for fused pairs that it is of."""
    atomic = [pytest.param(name, form, None, id=name) for name, form in FORMS.items()]
    split = [pytest.param(name, form, "split", id=f"{name}, split") for name, form in SPLIT_FORMS.items()]
    return pytest.mark.parametrize(("name", "form", "fused"), [*atomic, *split])(test)


@both_rules
def test_exact_where_it_says_so(name: str, form: Form, fused: str | None) -> None:
    exact = 0
    for s in settings(name):
        if not form.exact(s):
            continue
        try:
            report = distsim.pipeline(
                s.stages, s.micro, name, s.chunks, forward=s.forward, input_gradient=s.input_gradient,
                weight_gradient=s.weight_gradient, hop=s.hop, fused=fused,
            )  # fmt: skip
        except DistsimError:
            continue
        exact += 1
        assert report.makespan == pytest.approx(form.makespan(s)), s
        assert closed_form(report) == f"closed form {show_time(report.makespan)}"
    assert exact >= 5


@both_rules
def test_arrays_give_what_numbers_give(name: str, form: Form, fused: str | None) -> None:
    rows = [s for s in settings(name) if s.stages > 1][::7]
    table = Setting(*(numpy.array(column) for column in zip(*rows, strict=True)))
    assert form.makespan(table) == pytest.approx([form.makespan(s) for s in rows])
    exact = numpy.broadcast_to(form.exact(table), len(rows))
    assert exact.tolist() == [bool(form.exact(s)) for s in rows]


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_of_every_stage(name: str) -> None:
    kind = registry.find(name)
    for p, m, v in product(STAGES, MICRO, (1, 2, 3) if kind.most is None else (kind.least,)):
        try:
            found = distsim.pipeline(p, m, name, v).peak_in_flight
        except DistsimError:
            continue
        expected = [PEAKS[name](Setting(p, m, v), stage) for stage in range(p)]
        assert list(found) == pytest.approx(expected), (p, m, v)
        assert list(found) == pytest.approx(PEAKS[name](Setting(p, m, v), numpy.arange(p)))


def test_pairs_of_a_time_of_their_own_have_no_closed_form() -> None:
    assert closed_form(distsim.pipeline(4, 8, "dualpipe", fused_time=3)) == ""


def test_the_bubble_of_1f1b_is_the_textbook_one() -> None:
    for p, m in product(STAGES, MICRO):
        assert distsim.pipeline(p, m).bubble_fraction == pytest.approx((p - 1) / (m + p - 1))


def test_uneven_1f1b_is_bounded_and_met_with_the_slowest_stage_last() -> None:
    for slow in range(4):
        forward = [1.0] * 4
        forward[slow] = 1.5
        backward = [2 * one for one in forward]
        found = distsim.pipeline(4, 12, forward=forward, backward=backward).makespan
        bound = sum(forward) * 3 + 11 * 4.5  # one micro-batch through all stages, the others behind the slowest
        assert found <= bound + 1e-9
        assert (abs(found - bound) < 1e-9) == (slow == 3)
