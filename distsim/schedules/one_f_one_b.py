"""1F1B with flush, also called PipeDream-flush and DAPPLE (Narayanan et al. 2021, Megatron-LM, section 2.2.1)."""

from __future__ import annotations

from distsim.schedules.action import Action, Orders


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """Stage s warms up with min(micro, stages - 1 - s) forwards, then alternates one forward and one backward, then
    drains; it never holds more than min(micro, stages - s) activations."""
    return [stage_order(s, min(micro, stages - 1 - s), micro) for s in range(stages)]


def stage_order(chunk: int, warmup: int, micro: int) -> list[Action]:
    """One stage's turn of ``warmup`` forwards, pairs, and the remaining backwards."""
    actions: list[Action] = [("F", chunk, i) for i in range(warmup)]
    for i in range(warmup, micro):
        actions += [("F", chunk, i), ("B", chunk, i - warmup)]
    return actions + [("B", chunk, i) for i in range(micro - warmup, micro)]
