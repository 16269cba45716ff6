"""How the best layout and its speed change with one field: a table and a plot."""

from __future__ import annotations

import math
import string
from itertools import pairwise

from distsim.engine.layouts.vary import Point, VaryReport
from distsim.report.prose import folded
from distsim.report.search import command, price_lines
from distsim.report.search_table import DEGREES, LIMITED, degrees, figures, fitted, limit_cells, recompute_word
from distsim.report.style import BLUE, VERMILLION, Style
from distsim.units import count, decimal_bytes, duration, stated

HEIGHT, WIDEST = 10, 64
SAME = 1e-9


def lines(report: VaryReport, term: Style) -> list[str]:
    """What was varied, the best layout for each value, the plot, and where the best layout changes."""
    request, base = report.request, report.base
    gpus = "" if report.field == "gpus" else f" on {' or '.join(f'{one:,}' for one in request.gpus)}"
    made = folded([
        f"{term.bold(base.model.name)}{gpus} x {base.gpu_words} ({base.cluster.name}): "
        f"best by {request.objective} as {term.bold(report.field)}{per(report)} varies",
    ], indent=4)  # fmt: skip
    priced = [point.report for point in report.points if point.report is not None and point.report.rents]
    made += [*dict.fromkeys(line for found in priced for line in price_lines(found)), ""]
    names = letters(report)
    made += [*table(report, names, term), ""]
    problems = [f"With {text_of(report, point)}: {point.problem}." for point in report.points if point.problem]
    made += folded(problems, indent=4)
    made += [*plot(report, names, term)]
    for before, after in pairwise(point for point in report.points if point.best):
        if names[before.value] != names[after.value]:
            changes = (
                f"Between {text_of(report, before)} and {text_of(report, after)} the best layout changes from "
                f"{names[before.value]} to {names[after.value]}."
            )
            made += folded([changes], indent=4)
    found = [point for point in report.points if point.best]
    if len(set(names.values())) == 1 and len(found) > 1:
        step = [point.best.report.seconds for point in found if point.best]
        same = "layout and its step are" if max(step) - min(step) <= SAME * max(step) else "layout is"
        made.append(f"The best {same} the same for all values.")
    if found and found[-1].best is not None and report.field in ("gpus", "seq"):  # other values exist in no preset
        made.append(f"Best with {text_of(report, found[-1])}: {command(found[-1].best)}")
    return made


def per(report: VaryReport) -> str:
    """What a value is of, after the field's name."""
    return f" of a node of {report.per_gpus} GPUs" if report.per_gpus > 1 else " per GPU" if report.per_gpus else ""


def letters(report: VaryReport) -> dict[float, str]:
    """A letter for each best layout, by value, in the order in which layouts appear."""
    seen: dict[tuple[object, ...], str] = {}
    names = {}
    for point in report.points:
        if point.best is None:
            continue
        layout = point.best.report.setup.layout
        degrees = [name for name in DEGREES if not (name == "dp" and report.field == "gpus")]
        own = (*(getattr(layout, name) for name in degrees), layout.schedule, bool(layout.sequence_parallel),
               recompute_word(point.best))  # fmt: skip
        alphabet = string.ascii_uppercase + string.ascii_lowercase
        names[point.value] = seen.setdefault(own, alphabet[len(seen) % len(alphabet)])
    return names


def text_of(report: VaryReport, point: Point) -> str:
    """A value as a person writes it."""
    value = point.value
    words = {
        "B": lambda: stated(decimal_bytes(value)), "B/s": lambda: decimal_bytes(value, "B/s"),
        "s": lambda: stated(duration(value)), "W": lambda: f"{value:,.0f} W",
        "FLOP/s": lambda: decimal_bytes(value, "FLOP/s"), "": lambda: f"{value:,.0f}",
    }  # fmt: skip
    return words[report.unit]()


def table(report: VaryReport, names: dict[float, str], term: Style) -> list[str]:
    """One row for each value."""
    rows: list[dict[str, str]] = []
    for point in report.points:
        row = {report.field: text_of(report, point)}
        if report.per_gpus > 1:
            row["per GPU"] = decimal_bytes(point.value / report.per_gpus, report.unit)
        if report.unit:
            row["factor"] = f"{point.factor:.3g}x"
        one = point.best
        if one is None or point.report is None:
            why = "no layout" if point.problem else "no layout is feasible"
            rows.append({**row, "layout": term.ink("none", VERMILLION), LIMITED: why, "limits": why, "limit": "none"})
            continue
        row |= {"layout": names[point.value], **figures(point.report, one)}
        row["tokens/s"] = count(one.report.tokens_per_second)
        rows.append(row | degrees(one) | limit_cells(one, point.report.limit))
    order = max(rows, key=len)  # columns as in a row that has a layout
    return fitted([{name: row.get(name, "") for name in order} for row in rows])


def plot(report: VaryReport, names: dict[float, str], term: Style) -> list[str]:
    """Tokens per second against the field (logarithmic), each value marked with the letter of its best layout."""
    points = [(point.value, point.best.report.tokens_per_second) for point in report.points if point.best]
    if len(points) < 2:
        return []
    low, high = min(rate for _, rate in points), max(rate for _, rate in points)
    least, most = min(value for value, _ in points), max(value for value, _ in points)
    label = max(len(count(low)), len(count(high)))
    width = max(20, min(WIDEST, term.width - label - 4))
    grid = [[" "] * width for _ in range(HEIGHT)]
    for value, rate in points:
        column = round(math.log(value / least) / math.log(most / least) * (width - 1))
        row = round((high - rate) / (high - low) * (HEIGHT - 1)) if high > low * (1 + SAME) else HEIGHT // 2
        grid[row][column] = names[value]
    wall, floor, corner = term.choose("│", "|"), term.choose("─", "-"), term.choose("└", "+")
    title = f"Tokens per second against {report.field}{per(report)} (logarithmic); letters: the best layout"
    made = [term.bold(line) for line in folded([title], indent=4)]
    for index, cells in enumerate(grid):
        text = count(high) if index == 0 else count(low) if index == HEIGHT - 1 else ""
        drawn = "".join(term.ink(cell, BLUE) if cell != " " else cell for cell in cells)
        made.append(f"{text:>{label}} {wall}{drawn}".rstrip())
    ends = [text_of(report, point) for point in report.points if point.value in (least, most)]
    made.append(f"{'':>{label}} {corner}{floor * width}")
    made.append(f"{'':>{label}}  {ends[0]}{ends[-1]:>{width - len(ends[0])}}")
    return [*made, ""]
