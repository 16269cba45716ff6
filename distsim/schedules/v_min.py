"""V-Min: a third of 1F1B's activation memory (Qi et al. 2024, Pipeline parallelism with controllable memory)."""

from __future__ import annotations

from distsim.schedules import stable_pattern
from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int = 2) -> Orders:
    """Every hop takes one slot; a number of stages that divides by three needs a gap of two."""
    p, gap = stages, 2 if stages % 3 == 0 else 0
    block = [[s, 2 * p - s - 1, 2 * p + gap + s, 4 * p + gap - s - 1] for s in range(p)]
    return stable_pattern.order(stages, micro, block)
