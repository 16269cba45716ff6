"""Gradients reduced and parameters gathered beside computation, or apart from it where a switch says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job

ON, OFF = "--dp-comm-overlap", "--no-dp-comm-overlap"
APART = {"overlap_gradients": False, "overlap_parameters": False, "overlap_updated": False}


def with_data_overlap(job: Job, framework: Framework) -> Framework:
    """The framework with or without such exchanges, as a job asks for; raises DistsimError where it has no choice."""
    asked = job.dp_comm_overlap
    if asked is None:
        return framework
    if asked == framework.traffic.overlap_gradients:
        return framework
    if asked:
        raise DistsimError(f"{framework.name} reduces gradients after backward, not beside it", f"leave {ON} out")
    if not framework.supports.dp_overlap:
        raise DistsimError(f"the profile {framework.name} always overlaps data parallel exchanges", f"leave {OFF} out")
    return apart(framework)


def apart(framework: Framework) -> Framework:
    """The framework with all data parallel exchanges before or after the computation that could hide them."""
    return framework.model_copy(update={"traffic": framework.traffic.model_copy(update=APART)})
