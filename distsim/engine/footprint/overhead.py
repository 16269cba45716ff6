"""What a process holds on a GPU beside what its framework's allocator does."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number, where
from distsim.engine.figures import Figures
from distsim.engine.footprint.expert_buffers import expert_buffer_bytes
from distsim.engine.footprint.user_buffers import user_buffer_bytes
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import communicator_bytes, context_bytes


def overhead_bytes(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """Context, communicators, buffers of dispatchers and of tiles."""
    layout, overhead, chip = setup.layout, setup.framework.overhead, setup.accelerator
    traits = traits_of(chip)
    groups = sum(where(size > 1, 1, 0) for size in (layout.tp, layout.pp, layout.cp, layout.ep, layout.dp))
    source = setup.framework.source_of("overhead.communicator_bytes") or "preset"
    total = expert_buffer_bytes(setup, stage, figures) + user_buffer_bytes(setup, figures) + figures.use(
        "context", context_bytes, code_bytes=overhead.context_bytes, units=chip.chip.units or 0,
        unit_bytes=traits.context_unit_bytes, architecture_bytes=traits.context_bytes,
    )  # fmt: skip
    return total + figures.use(
        "communicators", communicator_bytes, source, bytes_per_group=overhead.communicator_bytes, groups=groups
    )
