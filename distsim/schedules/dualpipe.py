"""DualPipe: two directions at once, forward of one fused with backward of the other (DeepSeek-AI 2024, DeepSeek-V3
technical report, section 3.2.1; the order is the one of the authors' code)."""

from __future__ import annotations

from distsim.errors import DistsimError
from distsim.schedules.action import Orders, mirrored
from distsim.schedules.dual import DualStage


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """Both halves of the stages mirror each other; ``micro`` counts both directions."""
    if stages % 2 or micro % 2 or micro < 2 * stages:
        even = stages + stages % 2
        raise DistsimError(
            f"dualpipe cannot run {micro} micro-batches on {stages} stages",
            "it needs an even number of stages and an even number of micro-batches, at least twice the stages",
            f"try {even} stages and {max(2 * even, micro + micro % 2)} micro-batches",
        )
    half = stages // 2
    orders: Orders = []
    for s in range(stages):
        near = min(s, stages - 1 - s)
        chunks_of = (mirrored(s, 0, stages), mirrored(s, 1, stages))
        stage = DualStage(chunks_of if s < half else chunks_of[::-1])
        stage.run(
            lone=2 * (half - near - 1), depth=near, turns=half - near - 1, steady=micro // 2 - stages + near + 1,
            apart=s in (half - 1, half),
        )  # fmt: skip
        orders.append(stage.actions)
    return orders
