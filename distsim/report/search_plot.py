"""Time against memory of the layouts that no other beats, drawn in characters."""

from __future__ import annotations

from distsim.engine.layouts.report import SearchReport
from distsim.engine.layouts.shown import FRONT
from distsim.report.prose import folded
from distsim.report.style import BLUE, Style
from distsim.units import GIB, duration, duration_like, gib

HEIGHT, WIDEST = 12, 72
SPAN = 2.0
"""Slowest time shown, as a multiple of the fastest: what is slower saves memory that nobody would pay so much for."""


def plot(report: SearchReport, term: Style) -> list[str]:
    """The front, least memory to the left, fastest at the bottom."""
    batch = report.global_batch
    points = [(one.report.memory.peak, one.report.seconds / one.found.group.batch * batch) for one in report.front]
    fastest = min(seconds for _, seconds in points)
    shown = [(size, seconds) for size, seconds in points if seconds <= SPAN * fastest]
    if len(shown) < 2:
        return []
    slowest = max(seconds for _, seconds in shown)
    low, high = min(size for size, _ in shown), report.limit
    ends = duration_like(slowest, fastest), duration(fastest)
    label = max(map(len, ends))
    width = max(20, min(WIDEST, term.width - label - 4))
    grid = [[" "] * width for _ in range(HEIGHT)]
    mark = term.choose("•", "*")
    for size, seconds in shown:
        column = round((size - low) / max(high - low, 1) * (width - 1))
        row = round((slowest - seconds) / max(slowest - fastest, 1e-12) * (HEIGHT - 1))
        grid[row][min(max(column, 0), width - 1)] = mark
    wall, floor, corner = term.choose("│", "|"), term.choose("─", "-"), term.choose("└", "+")
    what = "Step time" if len(report.batches) == 1 else f"Time of {batch:,} sequences"
    every = len(report.kept.front.found)
    of_all = f" of {every:,}" if every > FRONT else ""
    title = term.bold(f"{what} against memory: {len(report.front)}{of_all} layouts on the Pareto front")
    if len(shown) < len(points):
        title += f" ({len(points) - len(shown)} slower than {duration_like(SPAN * fastest, fastest)} not drawn)"
    made = folded([title], indent=4)
    for index, row_cells in enumerate(grid):
        text = ends[0] if index == 0 else ends[1] if index == HEIGHT - 1 else ""
        cells = "".join(term.ink(cell, BLUE) if cell != " " else cell for cell in row_cells)
        made.append(f"{text:>{label}} {wall}{cells}".rstrip())
    least = f"{low / GIB:.1f}"
    made.append(f"{'':>{label}} {corner}{floor * width}")
    made.append(f"{'':>{label}}  {least}{gib(high, 1):>{width - len(least)}}")
    return made
