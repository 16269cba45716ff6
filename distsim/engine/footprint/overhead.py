"""What a process holds on a GPU beside what its framework's allocator does."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number
from distsim.engine.figures import Figures
from distsim.engine.footprint.communicators import communicator_buffers
from distsim.engine.footprint.expert_buffers import expert_buffer_bytes
from distsim.engine.footprint.user_buffers import user_buffer_bytes
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import context_bytes


def overhead_bytes(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Context, communicators, buffers of dispatchers and of tiles."""
    overhead, chip = setup.framework.overhead, setup.accelerator
    traits = traits_of(chip)
    total = expert_buffer_bytes(setup, stage, figures) + user_buffer_bytes(setup, figures) + figures.use(
        "context", context_bytes, code_bytes=overhead.context_bytes, units=chip.chip.units or 0,
        unit_bytes=traits.context_unit_bytes, architecture_bytes=traits.context_bytes,
    )  # fmt: skip
    return total + communicator_buffers(setup, figures)
