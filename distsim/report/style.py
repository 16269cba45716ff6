"""Painted text and plain tables for one stream, in the palette that colour-blind people can tell apart; no rich."""

import os
from typing import NamedTuple

from distsim.report import terminal

PIPED_WIDTH = 100  # columns of a chart when nothing limits the line
LEVELS, ASCII_LEVELS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"  # a character filled from nothing to all of it


class Colour(NamedTuple):
    """A colour of the Okabe-Ito palette, and its nearest of a terminal's 256."""

    rgb: tuple[int, int, int]
    nearest: int
    dark: bool


# Okabe and Ito 2008, "Color universal design"
ORANGE = Colour((230, 159, 0), 214, False)
SKY = Colour((86, 180, 233), 74, False)
GREEN = Colour((0, 158, 115), 36, False)
YELLOW = Colour((240, 228, 66), 227, False)
BLUE = Colour((0, 114, 178), 25, True)
VERMILLION = Colour((213, 94, 0), 166, False)
PURPLE = Colour((204, 121, 167), 175, False)


class Style(NamedTuple):
    """How text may look on a stream."""

    width: int
    colours: int
    """0, 256, or 2**24."""
    unicode: bool

    def ground(self, text: str, colour: Colour) -> str:
        """Text on a coloured ground, in black or white as it reads better."""
        if not self.colours:
            return text
        return f"\x1b[{'97' if colour.dark else '30'};48;{self._code(colour)}m{text}\x1b[0m"

    def ink(self, text: str, colour: Colour) -> str:
        """Bold text in a colour."""
        return f"\x1b[1;38;{self._code(colour)}m{text}\x1b[0m" if self.colours else text

    def bold(self, text: str) -> str:
        """Bold text."""
        return f"\x1b[1m{text}\x1b[0m" if self.colours else text

    def choose(self, unicode: str, ascii: str) -> str:
        """The first where the stream's encoding has it."""
        return unicode if self.unicode else ascii

    def plain(self, text: str) -> str:
        """Text in the characters that the stream has; others become the nearest plain ones or a question mark."""
        if self.unicode:
            return text
        for fancy, simple in (("…", "..."), ("–", "-"), ("—", "-"), ("×", "x"), ("µ", "u"), ("→", "->")):
            text = text.replace(fancy, simple)
        return text.encode("ascii", "replace").decode("ascii")

    def _code(self, colour: Colour) -> str:
        return f"5;{colour.nearest}" if self.colours == 256 else "2;" + ";".join(map(str, colour.rgb))


def style() -> Style:
    """The style for stdout."""
    deep = os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    colours = (2**24 if deep else 256) if terminal.colour() else 0
    return Style(terminal.width() or PIPED_WIDTH, colours, terminal.unicode())


def bare(text: str) -> str:
    """Text without its paint."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def columns(header: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,), gap: int = 2) -> list[str]:
    """A table as lines: columns as wide as their longest cell, flush right but those named in ``left``."""
    widths = [max(len(bare(row[i])) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            room = " " * (width - len(bare(cell)))
            cells.append(cell + room if i in left else room + cell)
        lines.append((" " * gap).join(cells).rstrip())
    return lines
