"""Looped breadth-first: every micro-batch through a chunk before the next chunk (Lamy-Poirier 2023, Breadth-first
pipeline parallelism, section 4)."""

from __future__ import annotations

from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int) -> Orders:
    """All forwards chunk by chunk, then all backwards in exactly the reverse order; a stage holds all activations."""
    orders: Orders = []
    for s in range(stages):
        forwards = [("F", turn * stages + s, i) for turn in range(chunks) for i in range(micro)]
        orders.append([*forwards, *(("B", chunk, i) for _, chunk, i in reversed(forwards))])
    return orders
