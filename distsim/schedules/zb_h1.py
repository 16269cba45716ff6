"""ZB-H1: the weight gradient fills the drain of 1F1B at 1F1B's memory (Qi et al. 2023, Zero bubble pipeline
parallelism, section 3.1)."""

from __future__ import annotations

from distsim.schedules.action import Action, Orders
from distsim.schedules.interleaved_zb import with_late_weights


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """1F1B with stages - 1 - s warm-up forwards; stage s postpones its first s weight gradients, which then trail the
    input gradients by s to the end. It holds min(micro, stages) activations until their weight gradient."""
    orders: Orders = []
    for s in range(stages):
        warmup = min(stages - 1 - s, micro)
        forwards: list[Action] = [("F", s, i) for i in range(micro)]
        gradients: list[Action] = [("I", s, i) for i in range(micro)]
        orders.append(with_late_weights(forwards, gradients, warmup, postponed=s))
    return orders
