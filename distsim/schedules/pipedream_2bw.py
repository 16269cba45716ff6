"""PipeDream-2BW: double-buffered weights (Narayanan et al. 2021, Memory-efficient pipeline-parallel DNN training)."""

from __future__ import annotations

from distsim.schedules import one_f_one_b
from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """The order of 1F1B; gradients are coalesced over at least ``stages`` micro-batches, so two versions suffice."""
    return one_f_one_b.order(stages, micro)


def weight_versions(stages: int, micro: int) -> list[int]:
    """The current weights and the previous ones, on every stage (one where there is a single stage or micro-batch)."""
    return [2 if stages > 1 and micro > 1 else 1] * stages
