"""Bars of bytes against a capacity: each category has its letter and its colour, so that neither is needed alone."""

from __future__ import annotations

from collections.abc import Mapping

from distsim.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, Colour, Style

INKS: dict[str, tuple[str, Colour]] = {
    "parameters": ("P", BLUE),
    "gradients": ("G", SKY),
    "optimizer": ("O", ORANGE),
    "activations": ("A", GREEN),
    "buffers": ("B", YELLOW),
    "framework": ("F", PURPLE),
}


def bar(categories: Mapping[str, float], capacity: float, full: float, width: int, term: Style) -> str:
    """One bar of ``width`` cells for ``full`` bytes, with a mark where the capacity ends."""
    cells = _cells(categories, full, width)
    cells += [""] * (width - len(cells))
    limit = min(round(capacity / full * width), width)
    free, mark = term.choose("·", "."), term.choose("│", "|")
    room = [free if index < limit else " " for index in range(width)]
    shown = [cell or room[index] for index, cell in enumerate(cells)]
    return mark + _painted(shown[:limit], term) + mark + _painted(shown[limit:], term)


def _cells(categories: Mapping[str, float], full: float, width: int) -> list[str]:
    """A letter per cell; rounding the running sum keeps the whole bar true."""
    cells: list[str] = []
    done = 0.0
    for name, (letter, _) in INKS.items():
        done += categories.get(name, 0)
        cells += [letter] * (round(done / full * width) - len(cells))
    return cells


def _painted(cells: list[str], term: Style) -> str:
    """Runs of one letter in its colour."""
    colours = dict(INKS.values())
    text, at = "", 0
    while at < len(cells):
        end = at
        while end < len(cells) and cells[end] == cells[at]:
            end += 1
        run = "".join(cells[at:end])
        text += term.ground(run, colours[cells[at]]) if cells[at] in colours else run
        at = end
    return text


def legend(categories: Mapping[str, float], term: Style) -> list[str]:
    """What each letter means, of those that are there."""
    known = [f"{term.ground(ink[0], ink[1])} {name}" for name, ink in INKS.items() if categories.get(name, 0) > 0]
    return [*known, f"{term.choose('·', '.')} free"]
