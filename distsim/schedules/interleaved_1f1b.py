"""Interleaved 1F1B: several chunks per stage, a smaller bubble for more traffic (Narayanan et al. 2021, Megatron-LM,
section 2.2.2).

Three ways to warm up, named apart: ``order`` deals micro-batches in torch's equal rounds, which are Megatron's groups
of ``stages`` where these divide; ``megatron_order`` takes Megatron's ``microbatch_group_size_per_vp_stage``;
``overlapped_order`` warms up by one more forward so that a forward and a backward of different micro-batches can run as
one block (Megatron's overlap of expert-parallel communication).
"""

from __future__ import annotations

from distsim.errors import DistsimError
from distsim.schedules.action import Action, Orders
from distsim.schedules.rounds import group_size, visits


def order(stages: int, micro: int, chunks: int) -> Orders:
    """Stage s warms up with 2 (stages - 1 - s) + (chunks - 1) group forwards, then alternates forward and backward."""
    return _orders(stages, micro, chunks, group_size(stages, micro, "interleaved-1f1b"), fused=False)


def megatron_order(stages: int, micro: int, chunks: int, group: int | None = None) -> Orders:
    """Interleaved 1F1B in Megatron's order: its own group size of micro-batches, and its refusals."""
    return _orders(stages, micro, chunks, megatron_group(stages, micro, group), fused=False)


def overlapped_order(stages: int, micro: int, chunks: int, group: int | None = None) -> Orders:
    """Megatron's order for overlapped expert-parallel communication: forward i and backward i-1 are one block."""
    return _orders(stages, micro, chunks, megatron_group(stages, micro, group), fused=True)


def megatron_group(stages: int, micro: int, group: int | None) -> int:
    """The group size, by default ``stages``; refuses what Megatron refuses."""
    size = stages if group is None else group
    if not _takes(stages, micro, size):
        other = next((one for one in range(stages, micro + 1) if _takes(stages, micro, one)), None)
        raise DistsimError(
            f"Megatron cannot interleave {micro} micro-batches over {stages} stages in groups of {size}",
            f"a group holds at least {stages} micro-batches (the last, smaller one too) and at most all",
            f"try groups of {other}" if other else f"try {stages} micro-batches, or the schedule interleaved-1f1b",
        )
    return size


def _takes(stages: int, micro: int, group: int) -> bool:
    """Whether Megatron deals micro-batches in groups of that size."""
    return stages <= group <= micro and not 0 < micro % group < stages


def _orders(stages: int, micro: int, chunks: int, group: int, fused: bool) -> Orders:
    forward = list(visits(micro, chunks, group))
    backward = list(visits(micro, chunks, group, backward=True))
    extra = 1 if fused else 0
    return [
        _stage(s, stages, forward, backward, 2 * (stages - 1 - s) + (chunks - 1) * group + extra, fused)
        for s in range(stages)
    ]


def _stage(
    stage: int, stages: int, forward: list[tuple[int, int]], backward: list[tuple[int, int]], warmup: int, fused: bool
) -> list[Action]:
    warmup = min(warmup, len(forward))
    actions: list[Action] = [("F", turn * stages + stage, i) for turn, i in forward[:warmup]]
    for (turn, i), (back_turn, j) in zip(forward[warmup:], backward, strict=False):
        chunk, back = turn * stages + stage, back_turn * stages + stage
        actions += [("FB", chunk, i, back, j)] if fused else [("F", chunk, i), ("B", back, j)]
    return actions + [("B", turn * stages + stage, i) for turn, i in backward[len(forward) - warmup :]]
