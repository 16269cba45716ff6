"""Who shares a copy of the model's states."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum, where
from distsim.specs.layout import Layout


def sharding_group(layout: Layout, group: str) -> Number:
    """Ranks that share one copy of the states: the ZeRO group, or its part that holds the same experts, unless each
    keeps these whole."""
    if group == "dense":
        return layout.zero_group
    part = minimum(layout.expert_data_parallel, maximum(layout.zero_group * layout.tp // (layout.ep * layout.etp), 1))
    return where(layout.ep > 1, 1, part) if layout.experts_whole else part
