"""What plain torch moves and launches around scores by distance (DeBERTa), beside their products.

Counted operation by operation on torch 2.13 and transformers 5.24 (models/deberta_v2/modeling_deberta_v2.py,
DisentangledSelfAttention: 37 kernels forward and 52 backward, where a layer without distances has 13 and 22;
benchmarks/torch_passes.py prints them).
"""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.plain_costs import STRIDED_PACE, Cost, Pace, slowed
from distsim.engine.kernels.softmax_passes import plain_torch
from distsim.layers.ledger import Operation

KEY_PASSES = (2, 8)
"""Passes over keys: divided by the scale; backward that once more (2), and the gradients of keys and of queries that
both kinds of scores give are summed (3 each)."""
DISTANCE_COSTS = {"scaled keys": Cost(kernels=(1, 2)), "picked scores": Cost(kernels=(10, 11))}
"""Launches by role; those of picked scores are of one comparison: distances moved, clamped (two or three each) and
picked, scores divided and summed, and what distances are projected, laid out and repeated by."""
DIVIDED, SUMMED, SUMMED_IN_PLACE = 2, 3, 3
"""Passes over picked scores: divided by the scale; added to those of words with words; added to the first comparison's,
which starts from zero (``score = 0``, DIVIDED once more). Of two comparisons one has picked a transposed matrix, which
the sum in place steps over."""
GATHERED_PER_CYCLE = 1.0
"""Elements that a unit of the chip picks by an index a cycle at most (torch.gather, whose index of 8 bytes comes from
the cache), stated as SOFTMAX_PER_CYCLE. 33.5 million take 224 us in bf16 and 259 in fp32 (pytorch issue 121389), or in
fp16 333 with an index as large from memory (flagos-ai/FlagGems pull request 433). Neither tells its GPU: of an A100
these would be 1.25, 1.1 and 0.85."""
ADDED_PER_CYCLE = 1.0
"""The same of elements that are added to by an index (scatter_add_) where one instruction does it: fp32 backward takes
266 us in the same issue; fp16 takes as long as fp32 since torch 1.12 (pytorch issue 74487)."""
LOOPED_PER_CYCLE = 0.075
"""The same where 16-bit numbers are added in a loop that reads a word, adds to half of it and swaps it if nobody else
has meanwhile: two neighbours of a row meet in one word, and distances beyond 128 share buckets. Nobody measured it at
such indices: it is what is left of DeBERTa-v3's backward on an A100, 0.068 where its weights are bf16 and 0.081 under
autocast, which is not told (docs/findings/encoders-and-tensorflow.md): 113 ps an element. Where 8,192 rows meet in 8,
bf16 takes 33 times as long as fp32, 260 ps (pytorch issue 121389)."""


def in_plain_torch(setup: Setup, operation: Operation) -> bool:
    """Whether a row of scores by distance is made of plain torch's kernels, one after another."""
    return operation.role in DISTANCE_COSTS and plain_torch(setup) and not setup.compiled


def distance_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes, forward and backward, that memory would have moved meanwhile."""
    each = setup.precision.activation_bytes
    if operation.role == "scaled keys":
        return operation.shape[0] * each * KEY_PASSES[0], operation.shape[0] * each * KEY_PASSES[1]
    assert setup.model.disentangled is not None
    picked, scores, repeated = operation.shape
    terms, chip = setup.model.disentangled.terms, setup.accelerator
    in_place = SUMMED_IN_PLACE * slowed(STRIDED_PACE, chip, each)
    summed = (DIVIDED + in_place * (terms - 1) + SUMMED) / terms
    gathered = 2 * slowed(Pace(GATHERED_PER_CYCLE * 2 * each), chip)
    added = 3 * slowed(Pace(_added_per_cycle(setup) * 3 * each), chip)
    forward = repeated + picked * (gathered + DIVIDED + summed)
    backward = repeated + scores + picked * (added + DIVIDED)  # zeros as large as the scores of all distances
    return forward * each, backward * each


def _added_per_cycle(setup: Setup) -> float:
    """By instructions for pairs of 16-bit numbers where chip and torch have them: fp16's, of torch 1.12 and newer;
    bf16's on chips that add to bf16 in memory."""
    halves = (
        setup.kernels.half_adds == "pairs" if setup.precision.math == "fp16" else traits_of(setup.accelerator).bf16_adds
    )
    return ADDED_PER_CYCLE if halves or setup.precision.activation_bytes > 2 else LOOPED_PER_CYCLE
