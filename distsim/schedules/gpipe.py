"""GPipe: all forwards, then all backwards (Huang et al. 2019, GPipe, section 2.3)."""

from __future__ import annotations

from distsim.schedules.action import Orders


def order(stages: int, micro: int, chunks: int = 1) -> Orders:
    """All forwards, then all backwards in the same order of micro-batches; every stage holds ``micro`` activations."""
    return [[("F", s, i) for i in range(micro)] + [("B", s, i) for i in range(micro)] for s in range(stages)]
