"""Tables whose last column is what to type: where that overruns the terminal it goes on below, option by option."""

from __future__ import annotations

from distsim.report import terminal
from distsim.report.style import Style, bare, columns

INDENT = 2


def flag_table(header: list[str], rows: list[list[str]], term: Style, left: tuple[int, ...], spare: int) -> list[str]:
    """A table without its column ``spare`` where it is too wide with it, and its last column folded below the lines
    that are too long then; what is piped keeps its lines."""
    made = columns(header, rows, left)
    if _widest(made) > term.width:  # the flags say it all
        short = [[*row[:spare], *row[spare + 1 :]] for row in (header, *rows)]
        header, rows = short[0], short[1:]
        made = columns(header, rows, tuple(place - (place > spare) for place in left if place != spare))
    width = terminal.width()
    if width is None or _widest(made) <= width:
        return made
    return [part for line, row in zip(made, [header, *rows], strict=True) for part in _folded(line, row[-1], width)]


def _widest(lines: list[str]) -> int:
    return max(len(bare(line)) for line in lines)


def _folded(line: str, flags: str, width: int) -> list[str]:
    """A line whose flags are below it where it is too long with them, as many on each as it holds."""
    if len(bare(line)) <= width:
        return [line]
    made = [line.removesuffix(flags).rstrip(), ""]
    parted = f" {flags}".replace(" --", "\n--").replace(" without\n", "\nwithout ")
    for option in parted.strip().split("\n"):
        longer = f"{made[-1]} {option}" if made[-1] else " " * INDENT + option
        if made[-1] and len(longer) > width:
            made.append(" " * INDENT + option)
        else:
            made[-1] = longer
    return made
