"""What the output can take: how wide a line may be, and which characters."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself is left out: errors cost no more than the interpreter

if TYPE_CHECKING:
    from typing import TextIO

DUMB_WIDTH = 80
"""Columns of a terminal that does not say."""
NATURAL_WIDTH = 4096
"""Columns where nothing limits a line: a pipe gets every number whole."""


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal behind a stream, stdout when none is named: COLUMNS where it is set, None (natural width)
    where the stream is no terminal."""
    stream = stream or sys.stdout
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    if not stream.isatty():
        return None
    if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return DUMB_WIDTH
    try:
        return os.get_terminal_size(stream.fileno()).columns or DUMB_WIDTH
    except (OSError, ValueError):
        return DUMB_WIDTH


def unicode() -> bool:
    """Whether the output's encoding has more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")


def colour(stream: TextIO | None = None) -> bool:
    """Whether a person may see colour on a stream, stdout when none is named: NO_COLOR and TERM=dumb forbid it,
    FORCE_COLOR asks for it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
