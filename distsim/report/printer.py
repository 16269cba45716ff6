"""Prints styled lines: plain where colour is not wanted, through rich where it is."""

from __future__ import annotations

import sys

from distsim.report import terminal
from distsim.report.gantt import Line

# Blue, orange and grey stay apart for all common kinds of colour blindness (Okabe and Ito 2008).
_COLOURS = {
    "title": "bold",
    "label": "dim",
    "figure": "bold",
    "forward": "#56b4e9",
    "backward": "#e69f00",
    "weight": "#999999",
    "fused": "#cc79a7",
    "optimizer": "#009e73",
    "recompute": "#f0e442",
    "exposed": "#d55e00",
    "hidden": "#cc79a7",
    "other": "#999999",
}


def show(lines: list[Line]) -> None:
    """Write lines to stdout."""
    if not terminal.colour():
        sys.stdout.write("".join(plain(line) + "\n" for line in lines))
        return
    from rich.text import Text

    from distsim.report.console import console

    out = console()
    for line in lines:
        text = Text(no_wrap=True, overflow="ignore")
        for span in line:
            text.append(span.text, _COLOURS.get(span.style, ""))
        out.print(text, crop=False, soft_wrap=True)


def plain(line: Line) -> str:
    """A line without its styles."""
    return "".join(span.text for span in line).rstrip()
