"""What is said beside an answer: notes and errors, on stderr and as wide as its terminal. Programs that read them get
each on one line, whatever COLUMNS says."""

from __future__ import annotations

import sys

from distsim.report import terminal
from distsim.report.prose import folded_to


def note(text: str) -> None:
    """What a reader of the answer should know, and what its numbers do not show."""
    _say(f"note: {text}", 6)


def error(text: str) -> None:
    """Why there is no answer; lines below the first are hints."""
    _say(f"error: {text}", 4)


def _say(text: str, indent: int) -> None:
    width = terminal.width(sys.stderr) if sys.stderr.isatty() else None
    lines = folded_to(width, text.splitlines(), indent)
    print("\n".join(lines), file=sys.stderr)
