"""A sweep of one collective over sizes, as nccl-tests prints it, with a plot of bus bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distsim import units
from distsim.arrays import ceil_div
from distsim.report.style import ASCII_LEVELS, LEVELS

if TYPE_CHECKING:
    from distsim.engine.collective import Collective

_HEIGHT = 8
WIDEST_BAR, AXIS = 3, 11
"""Characters of a bar, and left of the first one."""


def rows(found: Sequence[Collective]) -> list[tuple[str, str, str, str, str, str]]:
    """Size, time, algorithm and bus bandwidth, algorithm and protocol of each size, as text with units."""
    return [
        (
            f"{one.bytes:,}",
            f"{one.seconds / units.MICROSECOND:,.1f}",
            f"{one.algorithm_bandwidth / units.GIGA:.2f}",
            f"{one.bus_bandwidth / units.GIGA:.2f}",
            one.algorithm,
            one.protocol,
        )
        for one in found
    ]


HEADS = ("size (B)", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "algorithm", "protocol")


def table(found: Sequence[Collective]) -> str:
    """The sweep as a plain table; numbers to the right, names to the left."""
    lines = [HEADS, *rows(found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    numbers = len(HEADS) - 2
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column < numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def plot(found: Sequence[Collective], unicode: bool = True, columns: int = WIDEST_BAR) -> str:
    """Bus bandwidth over size: one bar of ``columns`` characters per size, with none for a gap where that is 0; the
    axis in GB/s."""
    gap, columns = " " * (columns > 0), max(columns, 1)
    top = max((one.bus_bandwidth for one in found), default=0.0)
    if top <= 0:
        return ""
    bars = LEVELS if unicode else ASCII_LEVELS
    steps = len(bars) - 1
    heights = [round(one.bus_bandwidth / top * _HEIGHT * steps) for one in found]
    lines = []
    for level in range(_HEIGHT, 0, -1):
        label = f"{top * level / _HEIGHT / units.GIGA:8.1f}" if level % 2 == 0 else " " * 8
        cells = (bars[min(max(height - (level - 1) * steps, 0), steps)] * columns for height in heights)
        lines.append(f"{label} {'│' if unicode else '|'} {gap.join(cells)}".rstrip())
    first, last = units.decimal_bytes(found[0].bytes), units.decimal_bytes(found[-1].bytes)
    ends = f"bus bandwidth in GB/s; sizes double from {first} to {last}"
    return "\n".join([*lines, ends])


def heading(found: Sequence[Collective], cluster: str) -> str:
    """What is priced, where, over which link."""
    one = found[-1]
    nodes = int(ceil_div(one.gpus, one.gpus_per_node))
    spread = f"{one.gpus:,} GPUs in {nodes:,} {'domain' if nodes == 1 else 'domains'}"
    return f"{one.op} on {spread} of {cluster}, over {one.link}"


def text(found: Sequence[Collective], cluster: str, unicode: bool = True, width: int | None = None) -> str:
    """Heading, table and plot, its bars as wide as there is room."""
    parts = [heading(found, cluster), table(found)]
    if len(found) > 1:
        room = WIDEST_BAR if width is None else (width - AXIS) // len(found) - 1
        parts.append(plot(found, unicode, max(0, min(WIDEST_BAR, room))))
    return "\n\n".join(part for part in parts if part)
