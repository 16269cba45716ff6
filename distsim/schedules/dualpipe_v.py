"""DualPipeV: DualPipe cut in half, a V of two chunks per stage (sail-sg 2025, Cut-in-half; DeepSeek-AI's DualPipeV)."""

from __future__ import annotations

from distsim.errors import DistsimError
from distsim.schedules.action import Orders, wave_chunk
from distsim.schedules.dual import DualStage


def order(stages: int, micro: int, chunks: int = 2) -> Orders:
    """The first half of a DualPipe of twice the stages, its two directions folded into one V."""
    if micro < 2 * stages:
        raise DistsimError(
            f"dualpipe-v cannot run {micro} micro-batches on {stages} stages",
            f"it needs at least twice as many micro-batches as stages: {2 * stages}",
        )
    orders: Orders = []
    for s in range(stages):
        stage = DualStage((wave_chunk(0, s, stages), wave_chunk(1, s, stages)))
        stage.run(
            lone=2 * (stages - s - 1), depth=s, turns=stages - s - 1, steady=micro - 2 * stages + s + 1,
            apart=s == stages - 1,
        )  # fmt: skip
        orders.append(stage.actions)
    return orders
