"""A job that does not fit with a long context that nobody asked for: the same with sequences as most of a run has."""

from __future__ import annotations

from distsim.engine.jobs.models import USUAL_SEQUENCE
from distsim.engine.jobs.resolve import resolve
from distsim.engine.memory import MemoryReport, memory_of
from distsim.errors import DistsimError


def shorter(report: MemoryReport) -> MemoryReport | None:
    """The job's memory at a usual length; None where its length was stated or is not long, or where it fits."""
    job = report.setup.job
    if report.fits or job.seq is not None or report.setup.layout.seq <= USUAL_SEQUENCE:
        return None
    try:
        return memory_of(resolve(job.model_copy(update={"seq": USUAL_SEQUENCE})))
    except DistsimError:
        return None
