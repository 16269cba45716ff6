"""Vocabulary parallelism: all stages of a pipeline share embedding and output layer by rows of the vocabulary.

The ends of a pipeline hold the vocabulary otherwise, and a large one makes the last stage the slowest by far.
"""

from __future__ import annotations

from distsim.arrays import Number, minimum
from distsim.errors import DistsimError
from distsim.layers.ledger import Operation
from distsim.specs.layout import Layout
from distsim.specs.model import Model

HELD = {"vocab-1": (1.0, 2), "vocab-2": (1.0, 1), "interlaced": (1.5, 0)}
"""Micro-batches that a stage holds, over those of 1F1B, and beyond them: with two barriers between the output layer's
forward and backward, with one, and with tensor-parallel-like exchanges in the path (Yeung et al. 2024,
arXiv:2411.05288: p + 2, p + 1 and 1.5 p on the first stage)."""
SCHEDULES = ("1f1b", "v-half")
"""Schedules that vocabulary passes were worked into there."""


def check_vocabulary(model: Model, layout: Layout) -> None:
    """Raise DistsimError where stages cannot share the vocabulary."""
    way = layout.vocab_parallel
    if not way:
        return
    if layout.pp == 1:
        raise DistsimError(f"--vocab-parallel {way} has no effect with pp 1", "add --pp 2 or more, or leave it out")
    if layout.schedule not in SCHEDULES:
        raise DistsimError(
            f"--vocab-parallel {way} is not worked into schedule {layout.schedule}",
            f"schedules with it: {', '.join(SCHEDULES)}",
        )
    if not model.output.over_vocabulary:
        raise DistsimError(
            f"--vocab-parallel {way} shares an output layer over the vocabulary, but {model.name} predicts "
            f"{model.output.predicts}",
            "leave it out",
        )
    if model.mtp_trained:
        raise DistsimError(
            f"--vocab-parallel {way} shares one output layer, but --mtp {model.mtp_trained} adds others",
            "leave one of the two out",
        )


def held_with_vocabulary(layout: Layout, in_flight: Number) -> Number:
    """Micro-batches whose activations a stage holds, given how many the schedule alone makes it hold."""
    if not layout.vocab_parallel:
        return in_flight
    share, beyond = HELD[layout.vocab_parallel]
    return minimum(in_flight * share + beyond, layout.micro_batches)


def shared_rows(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Of embedding or head, what a stage does that only shares the vocabulary's rows: look up, multiply, loss."""
    kept = [one for one in operations if one.name in ("embedding", "head", "loss")]
    return tuple(
        one._replace(saved=one.saved[:1], parameters=one.parameters[:1], collectives=())
        if one.name == "embedding" else one
        for one in kept
    )  # fmt: skip
