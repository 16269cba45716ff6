"""The moments of a stage side by side, so that a reader sees which is the largest."""

from __future__ import annotations

from distsim.engine.memory import StageMemory
from distsim.report.memory import number
from distsim.report.style import Style, columns

TITLE = "Moments compared (asked for: states, activations, transients and buffers)"


def moment_lines(stage: StageMemory, term: Style) -> list[str]:
    """Each moment's bytes: what the program asks for, what is held beside that, and both, whose largest is the peak."""
    rows = [["", "GiB", "GiB", "GiB", ""]]
    for one in stage.moments:
        asked = stage.at(one)
        mark = "<- peak" if one.name == stage.peak_moment else ""
        rows.append([one.name, *map(number, (asked, one.overhead, asked + one.overhead)), mark])
    return [term.bold(TITLE), *columns(["moment", "asked for", "overhead", "whole", ""], rows, left=(0, 4))]
