"""Which columns of a table a terminal has room for, so that no word or figure in a cell is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

GAP = 3
"""Blanks between two columns."""


def least_width(heading: str, cells: Sequence[str], folded: int | None = None) -> int:
    """The width below which words or figures of a column would be broken; one that is ``folded`` between words reads
    well from so many columns on. Headings fold."""
    most = max(map(len, cells), default=0)
    if folded is not None:
        most = max([min(most, folded), *(len(word) for cell in cells for word in cell.split())])
    return max([most, *map(len, heading.split())])


def kept_columns(widths: Mapping[str, int], spare: Sequence[str], room: int, gap: int = GAP) -> list[str]:
    """Names of the columns that fit, in their order: all but ``spare`` ones, and of those the last first."""
    kept = {name for name in widths if name not in spare}
    for name in reversed([one for one in spare if one in widths]):
        if sum(widths[one] + gap for one in (*kept, name)) - gap <= room:
            kept.add(name)
    return [name for name in widths if name in kept]


def squeezed(widths: Mapping[str, int], least: Mapping[str, int], room: int, gap: int = GAP) -> dict[str, int]:
    """Widths with which columns fit that do not otherwise: the widest give way, to no less than their words need."""
    made = dict(widths)
    while sum(made.values()) + gap * (len(made) - 1) > room:
        able = [name for name in made if made[name] > least[name]]
        if not able:
            break
        made[max(able, key=made.__getitem__)] -= 1
    return made


def left_out(names: Sequence[str], kept: Sequence[str]) -> list[str]:
    """A line that names what did not fit; nothing where all did."""
    lacking = ", ".join(name for name in names if name not in kept)
    return [f"not shown (use a wider terminal or --json): {lacking}"] if lacking else []
