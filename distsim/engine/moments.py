"""The moments of a step at which memory may peak."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number
from distsim.engine.resolve import Setup
from distsim.engine.saved import Saved, layer_saved_bytes
from distsim.engine.stages import Stage
from distsim.engine.states import States
from distsim.layers.ledger import saved_bytes


class Moment(NamedTuple):
    """A point of the step: bytes of activations (with transients) and gradients alive, and of all states together."""

    name: str
    activations: Number
    gradients: Number
    total: Number


def moments_of(setup: Setup, stage: Stage, held: States, saved: Saved) -> list[Moment]:
    """Candidates for the peak, in the order in which they happen."""
    alive = saved.total * stage.in_flight
    constant = held.parameters + held.optimizer
    found: list[Moment] = []

    def add(name: str, activations: Number, gradients: Number) -> None:
        found.append(Moment(name, activations, gradients, constant + activations + gradients))

    if stage.head is not None:
        loss = stage.head.operations[-1]
        add("loss", alive + sum(t.size_bytes for t in loss.transient_forward), held.gradients)
        add("loss backward", alive + sum(t.size_bytes for t in loss.transient_backward), held.gradients)
    else:
        add("forward end", alive, held.gradients)
    if not stage.layers:
        return [*found, Moment("optimizer step", 0, held.gradients, constant + held.gradients)]
    block, _ = stage.layers[-1]
    whole = saved_bytes(block.operations)
    kept = layer_saved_bytes(setup, block, int(setup.layout.recompute_layers != 0))
    add("backward of the last layer", alive + whole - kept - saved.head_and_loss, held.gradients)
    add("optimizer step", 0, held.gradients)
    return found
