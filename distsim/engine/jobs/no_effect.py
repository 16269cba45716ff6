"""Notes on exchanges that a job chooses and that its layout does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.engine.jobs.exchange import reduces_last
from distsim.specs.flags import flag

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.job import Job
    from distsim.specs.layout import Layout


OUTER_STEPS = 500
"""Steps between two synchronisations in Douillard et al. 2023, DiLoCo (arXiv:2311.08105), section 3."""


def average_note(job: Job) -> str:
    """Where replicas that take steps of their own are to synchronise nobody knows how often."""
    if job.sync != "local-sgd" or job.sync_every is not None:
        return ""
    return (f"--sync-every not given: replicas average parameters after every step, which sends no less than reducing "
            f"gradients; DiLoCo did after {OUTER_STEPS}: --sync-every {OUTER_STEPS}")  # fmt: skip


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
