"""How interleaved schedules walk through chunks and micro-batches: groups of micro-batches, chunk after chunk."""

from __future__ import annotations

from collections.abc import Iterator

from distsim.errors import DistsimError


def group_size(stages: int, micro: int, name: str) -> int:
    """Micro-batches per round: ``stages`` where it divides ``micro`` (Megatron), else the equal rounds of torch."""
    rounds = max(1, micro // stages)
    if micro % rounds:
        below, above = micro // stages * stages, (micro // stages + 1) * stages
        raise DistsimError(
            f"{name} cannot split {micro} micro-batches over {stages} stages into {rounds} equal rounds",
            f"the number must be divisible by the stages (micro % {stages} == 0) or by the rounds (micro // {stages})",
            f"try {below} or {above} micro-batches",
        )
    return micro // rounds


def visits(micro: int, chunks: int, group: int, backward: bool = False) -> Iterator[tuple[int, int]]:
    """(turn, micro-batch) as a stage meets them: ``group`` micro-batches per turn, turns reversed in backward.

    The last group may be smaller; every stage sees the same sequence.
    """
    turns = range(chunks - 1, -1, -1) if backward else range(chunks)
    for first in range(0, micro, group):
        for turn in turns:
            for i in range(first, min(first + group, micro)):
                yield turn, i
