"""Chimera: two pipelines in opposite directions fill each other's bubbles (Li and Hoefler 2021, Chimera, section 3.1).

Units of ``stages`` micro-batches are concatenated directly, as the authors' code does.
"""

from __future__ import annotations

from distsim.errors import DistsimError
from distsim.schedules.action import Action, Orders, mirrored


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """In a unit, micro-batch j of either direction enters at slot 2j; the two directions never want the same slot."""
    if stages % 2 or micro % 2:
        raise DistsimError(
            f"chimera cannot run {micro} micro-batches on {stages} stages",
            "it needs an even number of stages and of micro-batches (half of them in each direction)",
            f"try {stages + stages % 2} stages and {micro + micro % 2} micro-batches",
        )
    slots: list[list[tuple[int, Action]]] = [[] for _ in range(stages)]
    for i in range(micro // 2):
        unit, turn = divmod(i, stages // 2)
        enter = 2 * stages * unit + 2 * turn
        for s in range(stages):
            for direction in (0, 1):
                chunk = mirrored(s, direction, stages)
                hops = chunk % stages
                slots[s] += [(enter + hops, ("F", chunk, i)), (enter + 2 * stages - 1 - hops, ("B", chunk, i))]
    return [[action for _, action in sorted(stage)] for stage in slots]
