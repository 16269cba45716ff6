"""When a measured run reduced gradients where nobody says: in every micro-batch where whole ones would not have
fitted."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.waiting import reduced_each
from distsim.engine.memory import memory_of
from distsim.engine.runs.contradictions import too_large
from distsim.engine.runs.weights_to_fit import LEAST_SHARE, STATES
from distsim.interop.runs import Run
from distsim.interop.runs.sharding import reduces_once

EACH_MICRO_BATCH = {"no_sync": False}
"""The option that reduces them so."""


def whole_gradients_too_large(setup: Setup) -> bool:
    """Whether a run that put off its reductions only as its software does unasked would not have fitted with the whole
    gradients that then wait. It ran, so its author had turned that off. These gradients and the states must be what
    does not fit: else activations may be counted too high."""
    if setup.job.no_sync is not None or (each := reduced_each(setup)) is None:
        return False
    memory = memory_of(setup)
    if not too_large(setup, memory.peak):
        return False
    held, kept = memory.worst.categories, memory_of(each).worst.categories
    waiting = held["buffers"] - kept["buffers"]
    return bool(waiting + sum(held[name] for name in STATES) >= LEAST_SHARE * setup.accelerator.capacity)


def assumed_reductions(run: Run, setup: Setup) -> str:
    """What is taken for granted of reductions that nobody speaks of."""
    taken = setup.job.no_sync is False and reduces_once(run) is None
    return "whole gradients would not fit until the last micro-batch: assumed reduced in each" if taken else ""
