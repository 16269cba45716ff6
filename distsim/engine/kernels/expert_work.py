"""The part of a stage's computation that experts are, where exchanges of their weights cannot run beside it."""

from __future__ import annotations

from distsim.arrays import where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.tower_setup import setup_of_row
from distsim.engine.kernels.captured import DYNAMIC
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import dropped_of, needed_of, operation_sums
from distsim.engine.kernels.sums import PHASES, Sums


def expert_sums(setup: Setup, stage: Stage) -> dict[str, Sums]:
    """Seconds of experts' products, of what orders their tokens and of their activation, by phase of a micro-batch;
    empty where no weights of experts are gathered inside of their own layer."""
    if setup.model.experts is None or not setup.framework.traffic.gathers_in_layer:
        return {}
    chip, layout, found = Chip(setup), setup.layout, {phase: Sums() for phase in PHASES}
    for (block, count), again in zip(stage.layers, stage.recomputed(layout), strict=True):
        own = setup_of_row(setup, block.name)
        needed = needed_of(own, block)
        for place, (operation, repeated) in enumerate(
            zip(block.operations, dropped_of(own, block, needed), strict=True)
        ):
            if operation.name not in DYNAMIC:
                continue
            forward, backward = operation_sums(own, chip, operation)
            found["forward"].add(forward, count)
            found["backward"].add(backward, count)
            if place < needed:
                found["recompute"].add(forward, again)
            if repeated:
                found["recompute"].add(forward, where(layout.selective, count, 0))
    return found
