"""Notes on exchanges that a job chooses and that its layout does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.engine.jobs.exchange import reduces_last
from distsim.specs.flags import flag

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.job import Job
    from distsim.specs.layout import Layout


def loss_note(job: Job, layout: Layout) -> str:
    """Where a choice of sharded logits has no effect."""
    unread = job.loss_parallel is not None and layout.tp == 1
    return f"{flag('loss_parallel', job.loss_parallel)} has no effect with tp 1" if unread else ""


def sync_note(setup: Setup) -> str:
    """Where a choice of when gradients are reduced has no effect."""
    layout, stated, framework = setup.layout, setup.job.no_sync, setup.framework
    if stated is None:
        return ""
    unread = f"{flag('no_sync', stated)} has no effect"
    alone = layout.sharers(setup.model.experts is not None) == 1
    if alone and not (layout.tp > 1 and framework.traffic.replicated_gradient_reads):
        return f"{unread} without data parallel ranks"
    if layout.micro_batches == 1:
        return f"{unread} with one micro-batch per step"
    if setup.job.sync == "local-sgd" and layout.zero == 0:
        return f"{unread} with --sync local-sgd: replicas reduce no gradients"
    if not stated and reduces_last(setup):
        return f"{unread} with pp {layout.pp}: torch's stages reduce after the last micro-batch"
    if not stated and layout.zero == 0 and framework.traffic.replicas_reduce_once:
        return f"{unread} with ZeRO 0: {framework.name} reduces unsharded gradients only after the last micro-batch"
    return ""
