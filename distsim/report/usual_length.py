"""What a job that does not fit needs at a usual length, where nobody asked for the long one that it has."""

from __future__ import annotations

from distsim.engine.advice.shorter import shorter
from distsim.engine.memory import MemoryReport
from distsim.report.job_words import flowed
from distsim.report.style import Style
from distsim.units import gib


def shorter_lines(report: MemoryReport, term: Style) -> list[str]:
    """A sentence and a blank line; nothing for other jobs."""
    found = shorter(report)
    if found is None:
        return []
    whole = f"Nobody asked for the whole context of {report.setup.layout.seq:,} tokens:"
    fits = "fits" if found.fits else "does not fit"
    told = [whole, f"with --seq {found.setup.layout.seq} the job needs {gib(found.peak)} and {fits}."]
    return [*flowed(told, " ", term.width), ""]
