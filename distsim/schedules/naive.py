"""One micro-batch at a time: plain model parallelism, what pipelining was invented against (Huang et al. 2019)."""

from __future__ import annotations

from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """Forward and backward of a micro-batch before the next one starts; one stage works at any moment."""
    return [[action for i in range(micro) for action in (("F", s, i), ("B", s, i))] for s in range(stages)]
