"""What the output can take: how wide a line may be, and which characters."""

from __future__ import annotations

import os
import shutil
import sys

DUMB_WIDTH = 80


def width() -> int | None:
    """Columns of the terminal, COLUMNS where it is set, None (natural width) where the output is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    if not sys.stdout.isatty():
        return None
    if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return DUMB_WIDTH
    return shutil.get_terminal_size((DUMB_WIDTH, 24)).columns


def unicode() -> bool:
    """Whether the output's encoding has more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")


def colour() -> bool:
    """Whether a person may see colour: NO_COLOR and TERM=dumb forbid it, FORCE_COLOR asks for it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
