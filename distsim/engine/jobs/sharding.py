"""Who shares a copy of the model's states."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.specs.layout import Layout


def sharding_group(layout: Layout, group: str) -> Number:
    """Ranks that share one copy of the states: the ZeRO group, or its part that holds the same experts."""
    if group == "dense":
        return layout.zero_group
    return minimum(layout.expert_data_parallel, maximum(layout.zero_group * layout.tp // (layout.ep * layout.etp), 1))
