"""Cash so far of buying one accelerator and of renting one, as SVG: where the lines cross, buying has paid off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from distsim.engine.plans.ownership import Ownership
from distsim.report.html_figures import drawing, text
from distsim.report.html_scatter import round_dollars
from distsim.report.markup import Html, element
from distsim.units import YEAR_MONTHS, dollars

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960.0, 300.0, 84.0, 110.0, 24.0, 48.0
LINES = 5
"""About so many lines across."""
FEWEST_YEARS = 2
Point = tuple[float, float]


class Paper(NamedTuple):
    """Years across and dollars up, both from nothing."""

    years: int
    step: float
    lines: int

    def at(self, point: Point) -> Point:
        """Where a year and an amount lie."""
        year, amount = point
        x = LEFT + (WIDTH - LEFT - RIGHT) * year / self.years
        return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * amount / (self.step * self.lines)


def cash(own: Ownership) -> Html | None:
    """The plot; None for a machine that is sold in its first year."""
    life, end = own.life, own.years[-1]
    if len(own.years) < FEWEST_YEARS:
        return None
    running = own.years[0].buying - own.price
    buying = [(0.0, own.price), (life, own.price + life * running), (life, end.buying_so_far)]
    renting = [(0.0, 0.0), (life, end.renting_so_far)] if own.rented else []
    paper = _paper(len(own.years), max(amount for _, amount in (*buying, *renting)))
    parts = [*_scale(paper), *_crossing(own, paper), *_line("buying", buying, "step", paper)]
    words = f"After {life:g} years buying has cost {dollars(end.buying_so_far)}, resale deducted"
    if own.rented:
        parts += _line("renting", renting, "other", paper)
        words += f"; renting {dollars(end.renting_so_far)}"
    title = f"Cumulative dollars of buying{' and of renting' if own.rented else ''} one accelerator"
    return drawing("cash", WIDTH, HEIGHT, title, words, parts)


def _paper(years: int, most: float) -> Paper:
    ten = 10.0 ** math.floor(math.log10(most / LINES))
    step = next(factor * ten for factor in (1, 2, 5, 10) if factor * ten * LINES >= most)
    return Paper(years, step, math.ceil(most / step))


def _line(name: str, points: Sequence[Point], kind: str, paper: Paper) -> list[Html]:
    places = [paper.at(point) for point in points]
    path = " ".join(f"{'L' if index else 'M'}{x:.2f} {y:.2f}" for index, (x, y) in enumerate(places))
    x, y = places[-1]
    return [element("path", d=path, class_=kind), text(x + 8, y + 5, f"{name} {dollars(points[-1][1])}")]


def _scale(paper: Paper) -> list[Html]:
    made = []
    for line in range(paper.lines + 1):
        x, y = paper.at((0.0, line * paper.step))
        made.append(element("path", d=f"M{x:g} {y:.2f}H{WIDTH - RIGHT:g}", class_="grid"))
        made.append(text(x - 8, y + 5, round_dollars(line * paper.step) if line else "0", "end"))
    for year in range(paper.years + 1):
        x, y = paper.at((year, 0.0))
        made.append(text(x, y + 20, str(year), "middle"))
    return [*made, text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "years", "middle")]


def _crossing(own: Ownership, paper: Paper) -> list[Html]:
    """Where buying has paid off, if it does within the machine's life."""
    years = own.break_even_months / YEAR_MONTHS
    if years > paper.years:
        return []
    x, bottom = paper.at((years, 0.0))
    told = text(x - 6, TOP - 8, f"paid off after {own.break_even_months:,.1f} months", "end")
    return [element("path", d=f"M{x:.2f} {TOP:g}V{bottom:.2f}", class_="limit"), told]
