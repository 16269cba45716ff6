"""Days against what has to be paid on the terminal: every option a dot, the Pareto front by letter."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from distsim.engine.plans.plan import Option
from distsim.report.plan_words import days as length
from distsim.report.plan_words import source, unbeaten
from distsim.report.prose import folded
from distsim.report.style import GREEN, Style
from distsim.units import dollars

COLUMNS, LINES = 60, 14
NARROWEST = 20
FEWEST = 3
"""Fewer different options are seen as well in the table."""
DEAREST = 8.0
"""Options dearer than that many times the cheapest would only squeeze the plot: those that others beat are counted
below it."""


def pareto_lines(found: Sequence[Option], front: Sequence[int], term: Style, named: Sequence[Option] = ()) -> list[str]:
    """The plot of options, logarithmic both ways, and what each letter of the front stands for. The front is in it,
    however dear, and so are the options that are ``named`` elsewhere."""
    most = dearest(found)
    kept = {id(one) for one in (*(found[index] for index in front), *named)}
    places = [index for index, one in enumerate(found) if one.payable_dollars <= most or id(one) in kept]
    shown = [found[index] for index in places]
    if len({(one.days, one.payable_dollars) for one in shown}) < FEWEST:
        return []
    width = max(NARROWEST, min(COLUMNS, term.width - 4))
    cells = {index: _cell(shown, found[index], width) for index in places}
    grid = dict.fromkeys(cells.values(), term.choose("·", "."))
    letters = dict(zip(front, string.ascii_lowercase, strict=False))
    for index, letter in letters.items():
        grid[cells[index]] = term.ink(letter, GREEN)
    rows = [
        "  |" + "".join(grid.get((column, line), " ") for column in range(width)).rstrip()
        for line in reversed(range(LINES))
    ]
    left_out, other = len(found) - len(shown), "other " if any(one.payable_dollars > most for one in shown) else ""
    days, cost = [one.days for one in shown], [one.payable_dollars for one in shown]
    left, right = length(min(days)), length(max(days))
    title = f"{term.bold('Dollars (up) against days (across)')}, logarithmic; letters: {unbeaten(found)}"
    legend = [f"  {letter}  {_told(found[index])}" for index, letter in letters.items()]
    return [
        *folded([title], indent=4), f"  {dollars(max(cost))}", *rows, f"  +{'-' * width}",
        f"  {dollars(min(cost))}   {left} {right:>{max(width - len(left), len(right))}}", *legend,
        *([f"  not shown: {other}options over {dollars(most)} ({left_out})"] if left_out else []),
    ]  # fmt: skip


def _told(one: Option) -> str:
    what = f"{one.candidate.gpus:,} x {one.candidate.gpu} {source(one.quote)}"
    return f"{length(one.days)}, {dollars(one.payable_dollars)}: {what}"


def dearest(found: Sequence[Option]) -> float:
    """The most dollars that a plot has room for."""
    return DEAREST * min(one.payable_dollars for one in found)


def _cell(found: Sequence[Option], one: Option, width: int) -> tuple[int, int]:
    def place(value: float, values: list[float], size: int) -> int:
        low, high = min(values), max(values)
        span = math.log(high / low)
        return 0 if span == 0 else min(size - 1, int(math.log(value / low) / span * size))

    days, cost = [other.days for other in found], [other.payable_dollars for other in found]
    return place(one.days, days, width), place(one.payable_dollars, cost, LINES)
