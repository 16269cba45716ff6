"""V-Half: half of 1F1B's activation memory (Qi et al. 2024, Pipeline parallelism with controllable memory)."""

from __future__ import annotations

from distsim.schedules import stable_pattern
from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int = 2) -> Orders:
    """Hops take two slots on the way down and one on the way up; an even number of stages needs a gap of three."""
    p, gap = stages, 3 if stages % 2 == 0 else 0
    block = [[2 * s, 3 * p - s - 2, 3 * p + gap + 2 * s - 1, 6 * p + gap - s - 2] for s in range(p)]
    return stable_pattern.order(stages, micro, block)
