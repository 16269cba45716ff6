"""The one rich Console, with the manners of report/terminal.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from distsim.report import terminal

HEIGHT = 25  # lines; rich takes a width as given only together with a height


_TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")
"""Blanks at the end of a line, perhaps before marks that end a colour."""


class _Trimmed(Console):
    """A Console whose lines end where their words do: cells of the last column are padded to its width."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print what rich makes of the objects, without blanks at the ends of lines."""
        with self.capture() as made:
            super().print(*objects, **options)
        self.file.write("\n".join(trimmed(line) for line in made.get().split("\n")))


def trimmed(line: str) -> str:
    """A line without blanks at its end, also where colours end behind or between them."""
    while (shorter := _TRAILING.sub(r"\1", line)) != line:
        line = shorter
    return line


def console() -> Console:
    """A Console on stdout; as wide as the terminal, or as the text when piped."""
    stream = sys.stdout
    return _Trimmed(
        file=stream, width=terminal.width(stream) or terminal.NATURAL_WIDTH, height=HEIGHT,
        color_system="auto" if terminal.colour(stream) else None, highlight=False, emoji=False,
    )  # fmt: skip


def table(*headers: str, title: str = "", numbers: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """An empty table in the house style; columns named in ``numbers`` are set flush right, words of those in ``whole``
    are not broken while others can still give way."""
    made = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, show_edge=False)
    for header in headers:
        made.add_column(
            header, justify="right" if header in numbers else "left", overflow="fold", no_wrap=header in whole
        )
    return made
