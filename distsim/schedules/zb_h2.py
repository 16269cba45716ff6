"""ZB-H2: no bubble inside a stage's span, for about twice 1F1B's memory (Qi et al. 2023, Zero bubble pipeline
parallelism, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.schedules import zb_paper
from distsim.schedules.action import Action


def order(stages: int, micro: int, chunks: int = 1) -> Sequence[Sequence[Action]]:
    """The order of the paper's heuristic for equal times and its limit of 2 stages - 1 micro-batches; it does not
    change with the times. Without bubble from 2 stages - 1 micro-batches up."""
    return zb_paper.order(stages, micro, 2 * stages - 1)
