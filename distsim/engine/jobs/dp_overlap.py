"""Gradients reduced and parameters gathered beside computation, or apart from it where a switch says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job
    from distsim.specs.layout import Layout
    from distsim.specs.model import Model

ON, OFF = "--dp-comm-overlap", "--no-dp-comm-overlap"
APART = {"overlap_gradients": False, "overlap_parameters": False, "overlap_updated": False}
"""All data parallel exchanges before or after the computation that could hide them."""
GATHERS_APART = {name: beside for name, beside in APART.items() if name != "overlap_gradients"}
"""The same of those of parameters alone."""


def with_data_overlap(job: Job, framework: Framework) -> Framework:
    """The framework with or without such exchanges, as a job asks for; raises DistsimError where it has no choice."""
    asked = job.dp_comm_overlap
    if asked is None or asked == framework.traffic.overlap_gradients:
        return framework
    if asked:
        raise DistsimError(f"{framework.name} reduces gradients after backward, not beside it", f"leave {ON} out")
    if not framework.supports.dp_overlap:
        told = f"the profile {framework.name} has no switch that keeps data parallel exchanges apart from computation"
        raise DistsimError(told, f"leave {OFF} out")
    return framework.model_copy(update={"traffic": framework.traffic.model_copy(update=APART)})


def data_overlap_note(job: Job, model: Model, layout: Layout) -> str:
    """What a job that states it has to know: where it has no effect."""
    asked = job.dp_comm_overlap
    if asked is None or layout.sharers(model.experts is not None) > 1:
        return ""
    return f"{ON if asked else OFF} has no effect without data parallel ranks"
