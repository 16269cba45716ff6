"""PipeDream: asynchronous 1F1B with weight stashing (Narayanan et al. 2019, PipeDream, sections 3.2 and 3.3)."""

from __future__ import annotations

from distsim.schedules import one_f_one_b
from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """The order of 1F1B, but weights are updated after every backward and nothing is flushed between batches: ``micro``
    counts the mini-batches of a run, and only its two ends show a ramp."""
    return one_f_one_b.order(stages, micro)


def weight_versions(stages: int, micro: int) -> list[int]:
    """Stage s keeps one version of its weights for each mini-batch in flight: stages - s of them."""
    return [min(micro, stages - s) for s in range(stages)]
