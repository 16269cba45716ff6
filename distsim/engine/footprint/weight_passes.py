"""What micro-batches hold of a stage that wait for their weight gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from distsim.arrays import Number, largest, product, take
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.timelines.schedule_shape import Flight
from distsim.formulas.activations import split_backward_bytes
from distsim.last import for_parts_of_last
from distsim.layers.ledger import Block
from distsim.layers.weight_passes import later_bytes


@for_parts_of_last
def _waiting_of(setup: Setup, block: Block) -> Number:
    """Bytes of one micro-batch and block."""
    return later_bytes(block.operations, keeps_graph=setup.framework.buffers.weight_passes_keep_graph)


def head_waiting(setup: Setup, stage: Stage) -> Number:
    """Bytes of one micro-batch for the output layer; none where stages share the vocabulary, whose weight gradients are
    made in passes of their own (Yeung et al. 2024, arXiv:2411.05288, section 4)."""
    if stage.head is None or setup.layout.vocab_parallel:
        return 0
    return _waiting_of(setup, stage.head)


def waiting_bytes(setup: Setup, stage: Stage) -> Number:
    """Bytes of one micro-batch that waits for the weight gradients of a whole stage."""
    return sum(kinds_waiting(setup, stage)) + head_waiting(setup, stage)


def kinds_waiting(setup: Setup, stage: Stage) -> list[Number]:
    """The same for all layers of each kind."""
    return [_waiting_of(setup, block) * times for block, times in stage.layers]


def waiting_after(setup: Setup, stage: Stage, place: Number) -> Number:
    """Bytes that wait of the micro-batch whose input gradients are made of all layers after this place."""
    layers = sum(
        _waiting_of(setup, block) * (times - take(among, place + 1))
        for (block, times), among in zip(stage.layers, stage.among_first, strict=True)
    )
    return product(stage.split_share, layers + head_waiting(setup, stage))


class Waiting(NamedTuple):
    """Micro-batches that wait for their weight gradients at a stage's peak, and bytes of each."""

    flight: Flight
    each: Number = 0
    """Bytes of one micro-batch that waits."""


def waiting_at_peak(setup: Setup, stage: Stage, kept: Number) -> Waiting:
    """What one layout holds at the moment of its highest activations, which ``beyond_in_flight`` counts."""
    if not stage.flights.split:
        return Waiting(Flight(stage.in_flight))
    each = waiting_bytes(setup, stage)
    return Waiting(
        max(stage.flights.all, key=lambda one: split_backward_bytes(one.before, kept, one.waiting, each)), each
    )


class Beyond(NamedTuple):
    """What a stage holds beyond the micro-batches in flight: those that wait, less those no longer in flight then."""

    all: Number = 0
    """At the highest of all moments."""
    split: Number = 0
    """At the highest at which a backward begins that leaves weight gradients for later."""
    loss: Number = 0
    """At the highest at which the output layer runs, beyond the micro-batches in flight then."""


def in_flight_at_loss(stage: Stage) -> Number:
    """Micro-batches that a stage holds when its output layer runs."""
    return largest(one.before for one in stage.at_loss) if stage.at_loss else stage.in_flight


def beyond_in_flight(setup: Setup, stage: Stage, kept: Number) -> Beyond:
    """``Beyond`` in bytes, where a micro-batch in flight keeps ``kept`` bytes."""
    if not stage.flights.split:
        return Beyond()
    each = waiting_bytes(setup, stage)

    def most(moments: Iterable[Flight], in_flight: Number) -> Number:
        return largest(split_backward_bytes(one.before - in_flight, kept, one.waiting, each) for one in moments)

    every, split = (most(moments, stage.in_flight) for moments in stage.flights)
    return Beyond(every, split, most(stage.at_loss, in_flight_at_loss(stage)) if stage.at_loss else every)
