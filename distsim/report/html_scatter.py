"""Days against what has to be paid as SVG: every option a mark, those that nothing beats lettered and joined, limits
dashed."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import NamedTuple

from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.report.html_figures import drawing, text
from distsim.report.markup import Html, element
from distsim.report.plan_plot import dearest
from distsim.report.plan_words import days as length
from distsim.report.plan_words import source, unbeaten
from distsim.units import days_words, dollars

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960.0, 440.0, 84.0, 24.0, 16.0, 52.0
MARGIN = 1.12
"""The axes reach that factor beyond the marks."""
STEPS = (
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 6, 8),
    (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2, 2.2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
)
LEAST_TICKS = 3


class Axis(NamedTuple):
    """A logarithmic axis from one value to another, drawn from one place to another."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies."""
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(self.high / self.low)

    def has(self, value: float | None) -> bool:
        """Whether a value lies on the axis."""
        return value is not None and self.low <= value <= self.high

    def ticks(self) -> list[float]:
        """Round values, as few as tell the scale."""
        found: list[float] = []
        for steps in STEPS:
            tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [step * 10.0**ten for ten in tens for step in steps if self.has(step * 10.0**ten)]
            if len(found) >= LEAST_TICKS:
                break
        return found if len(found) > 1 else [self.low, self.high]


def round_dollars(amount: float) -> str:
    """A stated amount, without digits that nobody stated: ``$60M``."""
    return dollars(amount).replace(".00", "")


def lettered(made: Plan) -> dict[int, str]:
    """A letter for each option of the front, fastest first; beyond z there is none."""
    return dict(zip(made.pareto, string.ascii_lowercase, strict=False))


def shown(made: Plan, chosen: Option) -> list[int]:
    """Options that the plot has room for, and those that it is about; dearer ones would squeeze it."""
    front = set(made.pareto)
    most = dearest(made.options)
    return [
        index for index, one in enumerate(made.options)
        if one.payable_dollars <= most or index in front or one is chosen
    ]  # fmt: skip


def scatter(made: Plan, chosen: Option) -> Html:
    """The plot."""
    places = shown(made, chosen)
    found = [made.options[index] for index in places]
    days = _axis([one.days for one in found], made.request.wish.days, LEFT, WIDTH - RIGHT)
    cost = _axis([one.payable_dollars for one in found], made.request.wish.dollars, HEIGHT - BOTTOM, TOP)
    letters = lettered(made)
    marks = [_mark(one, days, cost) for index, one in zip(places, found, strict=True) if index not in letters]
    front = [made.options[index] for index in made.pareto]
    marks += [_joined(front, days, cost)]
    marks += [_lettered(made.options[index], letter, days, cost) for index, letter in letters.items()]
    ring = element("circle", class_="ring", cx=days.at(chosen.days), cy=cost.at(chosen.payable_dollars), r=12)
    words = "; ".join(
        f"{letter}: {length(made.options[index].days)}, {dollars(made.options[index].payable_dollars)}"
        for index, letter in letters.items()
    )
    parts = [*_scale(days, cost), *_limits(made, days, cost), *marks, ring]
    title = f"Dollars against days of {len(found)} options, both logarithmic"
    return drawing("pareto-plot", WIDTH, HEIGHT, title, f"{unbeaten(made.options).capitalize()}: {words}", parts)


def _axis(values: Sequence[float], limit: float | None, start: float, end: float) -> Axis:
    """An axis over all values, and over a limit that is not far from them."""
    low, high = min(values), max(values)
    if limit is not None and low / 3 <= limit <= high * 3:
        low, high = min(low, limit), max(high, limit)
    return Axis(low / MARGIN, high * MARGIN, start, end)


def _scale(days: Axis, cost: Axis) -> list[Html]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    made = []
    for value in days.ticks():
        x = days.at(value)
        made.append(element("path", d=f"M{x:.2f} {TOP:g}V{bottom:g}", class_="grid"))
        made.append(text(x, bottom + 20, f"{value:g}", "middle"))
    for value in cost.ticks():
        y = cost.at(value)
        made.append(element("path", d=f"M{LEFT:g} {y:.2f}H{right:g}", class_="grid"))
        made.append(text(LEFT - 8, y + 5, round_dollars(value), "end"))
    made.append(element("path", d=f"M{LEFT:g} {TOP:g}V{bottom:g}H{right:g}", class_="axis"))
    return [*made, text((LEFT + right) / 2, HEIGHT - 10, "days", "middle")]


def _limits(made: Plan, days: Axis, cost: Axis) -> list[Html]:
    wish, told = made.request.wish, []
    if wish.days is not None and days.has(wish.days):
        x = days.at(wish.days)
        told.append(element("path", d=f"M{x:.2f} {TOP:g}V{HEIGHT - BOTTOM:g}", class_="limit"))
        right = x < WIDTH / 3
        told.append(text(x + (6 if right else -6), TOP + 14, f"deadline {days_words(wish.days)}",
                         "start" if right else "end"))  # fmt: skip
    if wish.dollars is not None and cost.has(wish.dollars):
        y = cost.at(wish.dollars)
        told.append(element("path", d=f"M{LEFT:g} {y:.2f}H{WIDTH - RIGHT:g}", class_="limit"))
        told.append(text(WIDTH - RIGHT - 6, y - 6, f"budget {round_dollars(wish.dollars)}", "end"))
    return told


def _hint(one: Option) -> Html:
    size = f"{one.candidate.gpus:,} × {one.candidate.gpu} {source(one.quote)}"
    return element("title", f"{size}: {length(one.days)}, {dollars(one.payable_dollars)}")


def _mark(one: Option, days: Axis, cost: Axis) -> Html:
    mark = element("circle", cx=days.at(one.days), cy=cost.at(one.payable_dollars), r=4.5, class_="other")
    return element("g", _hint(one), mark)


def _lettered(one: Option, letter: str, days: Axis, cost: Axis) -> Html:
    x, y = days.at(one.days), cost.at(one.payable_dollars)
    mark = element("rect", x=x - 6, y=y - 6, width=12, height=12, class_="front")
    return element("g", _hint(one), mark, text(x + 11, y - 9, letter))


def _joined(front: Sequence[Option], days: Axis, cost: Axis) -> Html:
    """Steps: up to the next option of the front, nothing cheaper is as fast."""
    path = ""
    for one in front:
        x, y = days.at(one.days), cost.at(one.payable_dollars)
        path += f"H{x:.2f}V{y:.2f}" if path else f"M{x:.2f} {y:.2f}"
    return element("path", d=path, class_="step")
