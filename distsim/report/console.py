"""The one rich Console, with the manners of report/terminal.py."""

from __future__ import annotations

import sys
from collections.abc import Collection

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from distsim.report import terminal

HEIGHT = 25  # lines; rich takes a width as given only together with a height


def console(*, stderr: bool = False) -> Console:
    """A Console on stdout (data) or stderr (talk); as wide as the terminal, or as the text when piped."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
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
