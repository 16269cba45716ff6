"""The one rich Console: terminal manners (NO_COLOR, FORCE_COLOR, TERM=dumb, COLUMNS) in one place."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

NATURAL_WIDTH = 4096  # columns when nothing limits the line: a pipe gets every number whole
DUMB_WIDTH = 80  # columns of a terminal that does not say
HEIGHT = 25  # lines; rich takes a width as given only together with a height


def console(*, stderr: bool = False) -> Console:
    """A Console on stdout (data) or stderr (talk); as wide as the terminal, or as the text when piped."""
    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        width: int | None = int(columns)
    elif not stream.isatty():
        width = NATURAL_WIDTH
    else:
        width = DUMB_WIDTH if os.environ.get("TERM", "").lower() in ("dumb", "unknown") else None
    return Console(file=stream, width=width, height=HEIGHT if width else None, highlight=False, emoji=False)


def table(*headers: str, title: str = "", numbers: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """An empty table in the house style; columns named in ``numbers`` are set flush right, words of those in ``whole``
    are not broken while others can still give way."""
    made = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, show_edge=False)
    for header in headers:
        made.add_column(
            header, justify="right" if header in numbers else "left", overflow="fold", no_wrap=header in whole
        )
    return made
