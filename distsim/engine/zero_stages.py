"""The memory of the same job at each stage of ZeRO."""

from __future__ import annotations

from distsim.engine.jobs.framework_notes import refuse_other_stage
from distsim.engine.jobs.resolve import resolve
from distsim.engine.memory import MemoryReport, memory_of
from distsim.errors import DistsimError
from distsim.specs.layout import ZERO_STAGES


def zero_stages(report: MemoryReport) -> list[tuple[int, MemoryReport | str]]:
    """The memory at ZeRO 0 to 3, or in words why a stage is not valid for this job."""
    job = report.setup.job
    found: list[tuple[int, MemoryReport | str]] = []
    for zero in ZERO_STAGES:
        if zero == report.setup.layout.zero:
            found.append((zero, report))
            continue
        group = job.zero_group if zero else None
        try:
            setup = resolve(job.model_copy(update={"zero": zero, "zero_group": group}))
            refuse_other_stage(setup, zero)
            found.append((zero, memory_of(setup)))
        except DistsimError as error:
            found.append((zero, error.problem))
    return found
