"""How the activations at a stage's peak come about: what micro-batches keep, and what is made and freed since."""

from __future__ import annotations

import math
from collections.abc import Iterator

from distsim.engine.figures import Figures
from distsim.engine.footprint.moment import AT_LOSS, Moment
from distsim.engine.footprint.saved import Saved
from distsim.engine.footprint.stage_step import StageStep
from distsim.engine.footprint.states import States, stored
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.activations import alive_bytes, micro_batch_kept_bytes, moment_bytes
from distsim.layers.ledger import Operation, distinct_saved
from distsim.units import gib

NAMED = 3
"""Largest terms of a sum that are named."""


def activation_figures(setup: Setup, stage: Stage, held: States, saved: Saved, moment: Moment) -> Figures:
    """Of one layout, at the moment of its peak."""
    figures, setup = Figures(), stored(setup)
    step = StageStep(setup, stage, held, saved)
    kept = _kept(setup, stage, saved)
    figures.use("kept for backward by one micro-batch", micro_batch_kept_bytes, _told("largest", kept),
                layers=saved.layers, embedding=saved.embedding, head_and_loss=saved.head_and_loss)  # fmt: skip
    figures.use("alive when the last forward has ended", alive_bytes, **step.parts)
    figures.use(f"activations at the {moment.name}", moment_bytes, _told("made for itself", _in_transit(stage, moment)),
                alive=step.alive, made_less_freed=moment.churning - step.alive,
                gradients_to_come=moment.churning - moment.activations)  # fmt: skip
    return figures


def _told(what: str, sizes: list[tuple[str, float]]) -> str:
    """The largest of some tensors by name."""
    first = sorted(sizes, key=lambda one: -one[1])[:NAMED]
    return f"{what}: {', '.join(f'{name} {gib(size)}' for name, size in first if size)}" if first else ""


def _kept(setup: Setup, stage: Stage, saved: Saved) -> list[tuple[str, float]]:
    """Saved tensors of all alike layers, and of both ends, by name; none of layers that keep something else than their
    tensors (a policy's, a loop's)."""
    found: list[tuple[str, float]] = []
    for (block, count), again in zip(stage.layers, stage.recomputed(setup.layout), strict=True):
        for name, size in distinct_saved(block.operations, setup.layout.selective, setup.kernels).items():
            found.append((f"{name} of {count - again} {block.name} layers", size * (count - again)))
        if again and block.boundary is not None:
            found.append((f"inputs of {again} recomputed {block.name} layers", block.boundary.size_bytes * again))
    if not math.isclose(sum(size for _, size in found), saved.layers, rel_tol=1e-9):
        found = []
    ends = (end for end in (stage.embedding, stage.head) if end is not None)
    return found + [one for end in ends for one in distinct_saved(end.operations).items()]


def _in_transit(stage: Stage, moment: Moment) -> list[tuple[str, float]]:
    """What operations make for themselves at that moment, by name."""
    return [
        (tensor.name, tensor.size_bytes)
        for operation, forward in _about(stage, moment)
        for tensor in (operation.transient_forward if forward else operation.transient_backward)
    ]


def _about(stage: Stage, moment: Moment) -> Iterator[tuple[Operation, bool]]:
    """The operations that run at a moment, and whether forward."""
    if moment.name in AT_LOSS and stage.head is not None:
        yield stage.head.operations[-1], moment.name == AT_LOSS[0]
    elif moment.name.startswith("backward of") and stage.layers:
        yield from ((operation, False) for operation in stage.usual_layer[0].operations)
