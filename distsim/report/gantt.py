"""A schedule as lines of text: stages down, time across, idle time blank.

Pure: a simulated pipeline and a number of columns in, lines of styled spans out. Kinds differ by glyph, not only by
colour: forwards are lines, backwards dark blocks, weight gradients light ones; chunks alternate two shades of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from distsim.engine.timelines.simulation import Pipeline
from distsim.schedules.repeats import short, timed


class Span(NamedTuple):
    """A piece of a line; ``style`` names what it is (``forward``, ``idle``, …), the printer chooses a colour."""

    text: str
    style: str = ""


Line = list[Span]
Cell = tuple[str, str]
"""Style and character of one column."""
Shares = dict[int, dict[Cell, float]]
"""Seconds of every cell in every column."""

NATURAL_MOST = 200  # columns of a chart that nothing limits
MOST_ROWS = 64
NOTHING = 1e-9  # share of a column
STYLES = {"F": "forward", "B": "backward", "I": "backward", "W": "weight", "FB": "fused", "O": "optimizer"}
_UNICODE = {"F": "─═", "B": "█▓", "I": "█▓", "W": "▒░", "FB": "▚▞", "O": "◆◆"}
_ASCII = {"F": "-=", "B": "#%", "I": "#%", "W": "+:", "FB": "x*", "O": "oo"}


def glyphs(unicode: bool) -> dict[str, str]:
    """Two fill characters per kind, for even and odd chunks of a stage."""
    return _UNICODE if unicode else _ASCII


class Scale(NamedTuple):
    """``columns`` of the chart and how many of them make one second; ``merged`` where actions are too short to draw one
    by one."""

    columns: int
    per_second: float
    merged: bool


def scale(report: Pipeline, columns: int | None) -> Scale:
    """The largest scale within ``columns`` that lets every action start and end on a column, else the one that fills
    them. Without ``columns`` the shortest action gets room for its number."""
    costs = report.costs
    lengths = {
        costs.duration(a[:2] if len(a) < 4 else a) for order in report.parts.orders for a in _kinds(short(order))
    }
    shortest = min((one for one in lengths if one > 0), default=report.makespan or 1.0)
    if not report.makespan:
        return Scale(1, 1.0, True)
    if columns is None:
        wanted = len(str(max(0, report.micro - 1))) + 1
        columns = min(NATURAL_MOST, max(1, round(wanted * report.makespan / shortest + 0.5)))
    fits = int(columns * shortest / report.makespan + 1e-9)
    for per_action in range(fits, 0, -1):
        per_second = per_action / shortest
        if _exact(report, per_second):
            return Scale(round(report.makespan * per_second), per_second, False)
    return Scale(columns, columns / report.makespan, fits < 1)


def filling(report: Pipeline, columns: int) -> Scale:
    """The scale that fills the columns; actions start and end on the nearest column."""
    return Scale(columns, columns / report.makespan, False)


def _kinds(order: Sequence[Any]) -> Iterator[Any]:
    seen = set()
    for action in order:
        key = (action[0], action[1], action[3] if len(action) > 3 else None)
        if key not in seen:
            seen.add(key)
            yield action


def _exact(report: Pipeline, per_second: float) -> bool:
    """Whether all starts fall on columns (the makespan and the last start of each stage stand in for very many)."""
    times = [report.makespan, *report.timeline.last_end]
    for starts in report.timeline.starts:
        times += starts[:: max(1, len(starts) // 500)]
    return all(abs(t * per_second - round(t * per_second)) < 1e-6 * max(1.0, t * per_second) for t in times)


def chart(report: Pipeline, at: Scale, unicode: bool = True) -> list[Line]:
    """One line per stage (at most 64, evenly spaced), without labels."""
    return [row(report, stage, at, unicode) for stage in shown_stages(report.stages)]


def shown_stages(stages: int) -> list[int]:
    """The stages that get a line: all, or evenly spaced ones with the first and the last."""
    if stages <= MOST_ROWS:
        return list(range(stages))
    return sorted({round(i * (stages - 1) / (MOST_ROWS - 1)) for i in range(MOST_ROWS)})


def row(report: Pipeline, stage: int, at: Scale, unicode: bool = True) -> Line:
    """The line of one stage."""
    cells: list[Cell] = [("", " ")] * at.columns
    if at.merged:
        _merge(report, stage, at, glyphs(unicode), cells)
    else:
        _draw(report, stage, at, glyphs(unicode), cells)
    return spans(cells)


def events(report: Pipeline, stage: int) -> Iterator[tuple[Any, float, float]]:
    """(action, start, end) of a stage in turn, with the optimizer step as ``("O", chunk, 0)``."""
    duration = report.costs.duration
    for action, start in zip(report.parts.orders[stage], report.timeline.starts[stage], strict=True):
        yield action, start, start + duration(action)
    for start, end in report.optimizer[stage : stage + 1]:
        yield ("O", report.parts.placement.index(stage), 0), start, end


def shade(report: Pipeline, chunk: int) -> int:
    """0 or 1: alternates over the chunks of a stage (over the two directions in bidirectional schedules)."""
    return chunk // report.stages % 2


def label(action: Any) -> str:
    """The micro-batch number of an action, both of a fused block."""
    if action[0] == "O":
        return ""
    return f"{action[2]}&{action[4]}" if action[0] == "FB" else str(action[2])


def _draw(report: Pipeline, stage: int, at: Scale, fills: dict[str, str], cells: list[Cell]) -> None:
    for action, start, end in events(report, stage):
        first, last = round(start * at.per_second), round(end * at.per_second)
        room = last - first
        if room <= 0:
            continue
        style, name = STYLES[action[0]], label(action)
        if action[0] == "FB" and len(name) >= room:
            name = str(action[2])
        name = name if len(name) < room or (len(name) == room == 1 and action[0] == "F") else ""
        body = (name + fills[action[0]][shade(report, action[1])] * room)[:room]
        for offset, character in enumerate(body):
            cells[first + offset] = (style, character)


def _merge(report: Pipeline, stage: int, at: Scale, fills: dict[str, str], cells: list[Cell]) -> None:
    """Actions too short to draw one by one."""
    shares: Shares = {}
    for action, start, times, apart, _ in timed(report.parts.orders[stage], report.timeline.starts[stage]):
        cell = (STYLES[action[0]], fills[action[0]][shade(report, action[1])])
        spread(shares, cell, start, start + report.costs.duration(action), at, times, apart)
    for start, end in report.optimizer[stage : stage + 1]:
        spread(shares, (STYLES["O"], fills["O"][shade(report, report.parts.placement.index(stage))]), start, end, at)
    cells[:] = most_owed(shares, at)


def most_owed(shares: Shares, at: Scale, present: bool = False) -> list[Cell]:
    """Each column shows what takes most of its time. What a column leaves out is carried over to the next, so that the
    share of blank columns is the share of idle time to within a column; ``present`` limits a column to what is in
    it."""
    owed: dict[Cell, float] = {}
    step = 1.0 / at.per_second
    cells = []
    for column in range(at.columns):
        share = shares.get(column, {})
        for cell, seconds in share.items():
            owed[cell] = owed.get(cell, 0.0) + seconds
        idle = step - sum(share.values())
        owed["", " "] = owed.get(("", " "), 0.0) + idle
        here = [*share, *([("", " ")] if idle > NOTHING * step else [])] if present else owed
        best = max(here, key=lambda cell: owed[cell])
        owed[best] -= step
        cells.append(best)
    return cells


def spread(shares: Shares, cell: Cell, start: float, end: float, at: Scale, times: int = 1, apart: float = 0.0) -> None:
    """Add the seconds from ``start`` to ``end`` to the columns that they touch; the same so many times, each so many
    seconds ``apart``."""
    if times > 1:
        _spread_all(shares, cell, (start, end), at, times, apart)
        return
    column = min(at.columns - 1, int(start * at.per_second))
    while start < end - 1e-12 and column < at.columns:
        edge = end if column == at.columns - 1 else min(end, (column + 1) / at.per_second)
        here = shares.setdefault(column, {})
        here[cell] = here.get(cell, 0.0) + max(0.0, edge - start)
        start, column = max(start, edge), column + 1


def _spread_all(shares: Shares, cell: Cell, once: tuple[float, float], at: Scale, times: int, apart: float) -> None:
    """The same for repeated actions: each column gets the seconds before its end, less those before its start."""
    start, long = once[0], once[1] - once[0]

    def before(moment: float) -> float:
        turns = min(times - 1, int(max(0.0, moment - start) / apart))
        return turns * long + min(long, max(0.0, moment - start - turns * apart))

    last = start + (times - 1) * apart + long
    first = max(0, int(start * at.per_second))
    done = before(first / at.per_second)
    for column in range(first, min(at.columns - 1, int(last * at.per_second)) + 1):
        now = before((column + 1) / at.per_second)
        if now > done:
            here = shares.setdefault(column, {})
            here[cell] = here.get(cell, 0.0) + now - done
        done = now


def spans(cells: list[Cell]) -> Line:
    """Cells as a line of as few spans as their styles allow."""
    line: Line = []
    for style, text in cells:
        if line and line[-1].style == style:
            line[-1] = Span(line[-1].text + text, style)
        else:
            line.append(Span(text, style))
    return line


def axis(
    report: Pipeline, at: Scale, unicode: bool = True, show: Callable[[float], str] = lambda time: show_time(time)
) -> tuple[str, str]:
    """A ruler with a tick every round number of seconds, and the numbers under it."""
    corner, rule, tick = ("└", "─", "┴") if unicode else ("+", "-", "+")
    return ruler((0.0, report.makespan), at, show, (corner, rule, tick))


def ruler(
    window: tuple[float, float], at: Scale, show: Callable[[float], str], lines: tuple[str, str, str]
) -> tuple[str, str]:
    """A tick every round number of seconds of a window, the numbers under it, and its end."""
    corner, rule, tick = lines
    step = tick_step(window[1] - window[0], at.columns)
    marks = [corner, *(rule * at.columns)]
    numbers = [" "] * (at.columns + 12)
    end = show(window[1])
    taken = -1
    limit = at.columns - len(end) - 1
    for i in range(math.ceil(window[0] / step - 1e-9), int(window[1] / step + 1e-9) + 1):
        column = round((i * step - window[0]) * at.per_second)
        text = show(i * step)
        if column >= at.columns or (taken >= 0 and column <= taken) or column + len(text) > max(limit, 1):
            continue
        marks[1 + column] = tick
        numbers[1 + column : 1 + column + len(text)] = text
        taken = column + len(text)
    place = max(taken + 1, at.columns - len(end) + 1)
    numbers[place : place + len(end)] = end
    return "".join(marks), "".join(numbers).rstrip()


def tick_step(makespan: float, columns: int) -> float:
    """A round step that leaves about ten columns between ticks."""
    goal = (makespan or 1.0) * 10 / max(columns, 10)
    power = 10.0 ** math.floor(math.log10(goal))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= goal * 0.999)


def show_time(seconds: float) -> str:
    """A time in as few digits as it needs, six at most."""
    return f"{seconds:.6g}"


def show_seconds(seconds: float) -> str:
    """A time that is known to be in seconds: four digits, and of hours all seconds."""
    return f"{seconds:.4g} s" if seconds < 9999.5 else f"{seconds:,.0f} s"


def show_count(number: float) -> str:
    """A number of whole-stage activations: four digits do."""
    return f"{number:.4g}"
