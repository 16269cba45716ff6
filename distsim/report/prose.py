"""Sentences folded to the terminal, with their words and numbers; paint counts as no width, and what is piped stays on
its line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from distsim.report import terminal
from distsim.report.style import bare

FEW = 9.95
"""What has two digits before the point when it is rounded."""


def number(amount: float, digits: int = 1) -> str:
    """A number for a column: so many digits after the point, but two at least in all, and never an exponent."""
    size = abs(amount)
    if size >= FEW or amount == 0:
        return f"{amount:,.{digits}f}"
    return f"{amount:.{max(digits, 1)}f}" if size >= 1 else f"{Decimal(f'{amount:.2g}'):f}"


def either(words: Sequence[str]) -> str:
    """``8, 16 or 32``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def folded(lines: Iterable[str], indent: int = 12) -> list[str]:
    """Lines that are too long for the terminal go on below, indented."""
    return folded_to(terminal.width(), lines, indent)


def folded_to(width: int | None, lines: Iterable[str], indent: int) -> list[str]:
    """Lines of at most ``width`` columns, at any length where it is None."""
    return list(lines) if width is None else [part for line in lines for part in _fold(line, max(width, 40), indent)]


def _fold(line: str, width: int, indent: int) -> list[str]:
    if len(bare(line)) <= width:
        return [line]
    made: list[str] = []
    rest = line
    while len(bare(rest)) > width:
        cut = _last_blank(rest, width, indent if made else 0)
        if cut is None:
            break
        made.append(rest[:cut].rstrip(" "))
        rest = " " * indent + rest[cut + 1 :].lstrip(" ")
    return [*made, rest]


def _last_blank(line: str, width: int, start: int) -> int | None:
    """Where the last blank is that leaves no more than ``width`` columns before it, after the first ``start``."""
    found = None
    for index, letter in enumerate(line):
        if letter != " ":
            continue
        seen = len(bare(line[:index]))
        if seen > width:
            break
        if seen > start:
            found = index
    return found
