"""How much of the optimizer is in host memory, and updated there."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.arrays import Number, maximum
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import stage_at
from distsim.formulas.drives import SUB_GROUP_ELEMENTS
from distsim.formulas.states import host_share
from distsim.layers.ledger import Parameter

Held = Iterable[tuple[Parameter, int]]


def states_share(setup: Setup, held: Held) -> Number:
    """How much of the optimizer's states lives in host memory, where any does, of what a rank has ``held``."""
    part = setup.job.offload_fraction or 1.0
    if part == 1 or not by_sub_groups(setup):
        return part
    matrices: Number = 0
    others: Number = 0
    squares: Number = 0
    for one, count in held:
        shard = one.elements * count / sharding_group(setup.layout, one.group) * one.trains
        if one.kind == "vector":
            others = others + shard
        else:
            matrices, squares = matrices + shard, squares + shard * shard / (one.copies * count)
    return host_share(matrices, others, part, sub_group_elements(setup), squares / maximum(matrices, 1))


def host_updates(setup: Setup, held: Held) -> Number:
    """How much of what a rank trains its host updates."""
    return 0.0 if setup.states_return or "optimizer" not in setup.offload else states_share(setup, held)


def passes_host_buffer(setup: Setup) -> bool:
    """Whether gradients are added up on the GPU to a sum in host memory (DeepSpeed)."""
    return "optimizer" in setup.offload and setup.framework.traffic.host_gradients == "summed"


def by_sub_groups(setup: Setup) -> bool:
    """Whether no less than a sub-group of a rank's shard leaves (DeepSpeed)."""
    return setup.framework.supports.offload_fraction == "sub-groups"


def sub_group_elements(setup: Setup) -> float:
    """Elements of a rank's shard that are updated at a time."""
    return setup.framework.buffers.step_elements or SUB_GROUP_ELEMENTS


def sub_group_note(setup: Setup) -> str:
    """A note where that is not the part of the optimizer that a job states, or nothing."""
    part = setup.job.offload_fraction
    if part is None or not by_sub_groups(setup):
        return ""
    share = states_share(setup, stage_at(setup, 0).held())
    if f"{share:.0%}" == f"{part:.0%}":
        return ""
    groups = f"whole sub-groups of {sub_group_elements(setup):,.0f} parameters of a rank"
    return f"{setup.framework.name} moves {groups}: {share:.0%} of the optimizer in host memory, not {part:.0%}"
