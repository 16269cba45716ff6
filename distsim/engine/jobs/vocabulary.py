"""Vocabulary parallelism: all stages of a pipeline share embedding and output layer by rows of the vocabulary.

The ends of a pipeline hold the vocabulary otherwise, and a large one makes the last stage the slowest by far.
"""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.layers.ledger import Operation
from distsim.layers.names import EMBEDDING, HEAD, LOSS
from distsim.specs.layout import Layout

HELD = {"vocab-1": (1.0, 2), "vocab-2": (1.0, 1), "interlaced": (1.5, 0)}
"""Micro-batches that a stage holds, over those of 1F1B, and beyond them: with two barriers between the output layer's
forward and backward, with one, and with tensor-parallel-like exchanges in the path (Yeung et al. 2024,
arXiv:2411.05288: p + 2, p + 1 and 1.5 p on the first stage)."""


def held_with_vocabulary(layout: Layout, in_flight: Number) -> Number:
    """Micro-batches whose activations a stage holds, given how many the schedule alone makes it hold."""
    if not layout.vocab_parallel:
        return in_flight
    share, beyond = HELD[layout.vocab_parallel]
    return minimum(in_flight * share + beyond, layout.micro_batches)


def shared_rows(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The operations of embedding or head that a stage runs which only shares rows of the vocabulary: look up,
    multiply, loss."""
    kept = [one for one in operations if one.name in (EMBEDDING, HEAD, LOSS)]
    return tuple(
        one._replace(saved=one.saved[:1], parameters=one.parameters[:1], collectives=())
        if one.name == EMBEDDING else one
        for one in kept
    )  # fmt: skip
