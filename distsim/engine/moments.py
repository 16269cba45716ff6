"""The moments of a step at which memory may peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.backward import Gradients, backward_peak, elements
from distsim.engine.resolve import Setup
from distsim.engine.saved import Saved, layer_saved_bytes
from distsim.engine.stages import Stage
from distsim.engine.states import States
from distsim.layers.ledger import Block, Operation, saved_bytes, weight_copy_bytes

LAYERS_ON_GPU = 2
"""Layers whose saved tensors are on the GPU when activations are offloaded: one computes while another is copied."""


class Moment(NamedTuple):
    """A point of the step: bytes of activations (with transients), of gradients, and of everything with the states.

    ``gradients`` is all gradients of the rank, as the optimizer will read them. Where autograd has not made them all
    yet, activations fill their place, and ``activations`` is what they take beyond it.
    """

    name: str
    activations: Number
    gradients: Number
    states: Number
    """Parameters, optimizer states and gradients."""

    @property
    def total(self) -> Number:
        """Everything but buffers and overhead."""
        return self.states + self.activations


def highest(moments: Sequence[Moment]) -> Moment:
    """The peak; for arrays of layouts its name is left open."""
    if all(isinstance(part, (int, float)) for moment in moments for part in (moment.states, moment.activations)):
        return max(moments, key=lambda moment: moment.total)
    return moments[0]._replace(name="", activations=maximum(*(moment.activations for moment in moments)))


def _unless_zero(factor: Number, value: Number) -> Number:
    """Their product; a plain zero stays one, so that arrays of layouts do not grow by dimensions that do not matter."""
    return 0 if isinstance(factor, int) and factor == 0 else factor * value


def _transit(operation: Operation, forward: bool) -> Number:
    tensors = operation.transient_forward if forward else operation.transient_backward
    return sum(tensor.size_bytes for tensor in tensors)


def _parameters(block: Block | None) -> Number:
    return 0 if block is None else sum(elements(operation) for operation in block.operations)


def _entry(stage: Stage) -> Number:
    """Parameters whose gradients come last: the embedding's, but for a second stack's, which runs backward first."""
    rows = () if stage.embedding is None else stage.embedding.operations
    return sum(elements(operation) for operation in rows if operation.name != "embedding.text")


def _weight_copies(setup: Setup, stage: Stage) -> Number:
    """Cast weights that layers which are not recomputed keep, and the head's."""
    wanted, count = setup.layout.recompute_layers, stage.layer_count
    left = where(wanted < 0, count, minimum(wanted, count))
    total: Number = 0
    for block, times in stage.layers:
        here = minimum(left, times)
        total = total + (times - here) * weight_copy_bytes(block.operations)
        left = left - here
    return total


Peaks = dict[tuple[Any, ...], tuple[Block, Block, Number]]


class _Last:
    """Peaks of the layers of the setup that was asked for last: its stages share blocks, which are known by identity
    and kept with their peaks, so that no other can take their place."""

    known: tuple[Setup, Peaks] | None = None


class _Step:
    """One stage's step, with what all its moments share."""

    def __init__(self, setup: Setup, stage: Stage, held: States, saved: Saved) -> None:
        self.setup, self.stage, self.held, self.saved = setup, stage, held, saved
        y, buffers = setup.layout, setup.framework.buffers
        precision = setup.precision if setup.tuning is None else setup.tuning.adapter
        in_place = precision.gradient_bytes <= precision.parameter_bytes
        self.grow: Number = where(y.micro_batches > 1, 0, 1) if buffers.gradients_grow and in_place else 0
        whole = held.dense_parameters + held.expert_parameters
        self.per_element: Number = held.gradients / maximum(whole, 1)
        """Bytes of kept gradient per parameter of the stage: less than a whole one where ZeRO shards it."""
        fresh = min(precision.gradient_bytes, precision.parameter_bytes)
        accumulates = int(buffers.gradients_grow)  # else the product is added where it is kept
        self.gradients = Gradients(_unless_zero(self.grow, self.per_element), fresh * accumulates)
        self.copies = _weight_copies(setup, stage)
        layers = saved.layers * stage.in_flight
        others = saved.layers * (stage.in_flight - 1)
        if "activations" in setup.offload:  # the layer at work, and the one that moves meanwhile, stay on the GPU
            layers, others = minimum(layers, LAYERS_ON_GPU * saved.per_layer), 0
        self.alive: Number = layers + saved.embedding * stage.in_flight + saved.head_and_loss * stage.head_in_flight
        """Bytes kept for backward when the last forward of the peak has ended."""
        self.others: Number = (
            others + saved.embedding * (stage.in_flight - 1) + saved.head_and_loss * (stage.head_in_flight - 1)
        )
        """What micro-batches other than the one that runs backward keep."""
        self.found: list[Moment] = []

    def add(self, name: str, activations: Number, alive: Number = 0) -> None:
        """A moment with so many bytes of activations and of gradients that autograd has made so far."""
        gradients = self.held.gradients
        beyond = activations + alive - _unless_zero(self.grow, gradients)
        self.found.append(Moment(name, beyond, gradients, self.held.parameters + self.held.optimizer + gradients))

    def stream(self) -> Number:
        """Gradient of the residual stream."""
        boundary = self.stage.layers[0][0].boundary
        return 0 if boundary is None else boundary.size_bytes

    def layer(self, block: Block) -> Number:
        """The highest point of one layer's backward pass, less what the saved bytes count for that layer."""
        first = self.stage.layers[0][0]
        kept = self.gradients.kept
        if not isinstance(kept, (int, float)):
            return self._layer(block)
        last = _Last.known
        if last is None or last[0] is not self.setup:
            last = _Last.known = (self.setup, {})
        key = (id(block), id(first), kept)
        if key not in last[1]:
            last[1][key] = (block, first, self._layer(block))
        return last[1][key][2]

    def _layer(self, block: Block) -> Number:
        setup = self.setup
        peak = backward_peak(block.operations, self.gradients, setup.layout.selective, setup.kernels, self.stream())
        recomputed = where(setup.layout.recompute_layers != 0, 1, 0)
        kept = layer_saved_bytes(setup, block, recomputed)
        return peak - kept + where(recomputed, block.boundary.size_bytes if block.boundary else 0, 0)

    def tied_gradient(self) -> Number:
        """The head's gradient of a matrix that it shares with the embedding of this stage."""
        if self.stage.head is None or self.stage.embedding is None or not self.setup.model.tied_embeddings:
            return 0
        table = self.stage.embedding.operations[0].parameters[0]
        if not table.trains:
            return 0
        return table.elements * self.setup.precision.parameter_bytes * int(self.setup.framework.buffers.gradients_grow)


def moments_of(setup: Setup, stage: Stage, held: States, saved: Saved) -> list[Moment]:
    """Candidates for the peak, in the order in which they happen."""
    step = _Step(setup, stage, held, saved)
    alive = step.alive
    copies, tied, grown = step.copies, step.tied_gradient(), step.gradients.kept
    if stage.head is not None:
        loss = stage.head.operations[-1]
        head_copies = weight_copy_bytes(stage.head.operations)
        step.add("loss", alive + copies + head_copies + _transit(loss, True))
        step.add("loss backward", alive + copies + head_copies + _transit(loss, False))
    else:
        step.add("forward end", alive + copies)
    if stage.layers:
        _layers(step, stage, saved)
    if stage.embedding is not None:
        if setup.model.encoder_layers:
            _decoder_lookup(step, stage, saved, grown, tied)
        _embedding(step, stage, saved, grown, tied)
    _optimizer_step(step)
    if setup.tuning is not None and setup.framework.adapters.quantises_on_gpu:
        whole = sum(p.elements * times for p, times in stage.parameters()) * setup.precision.parameter_bytes
        step.add("loading, before weights are quantised", whole - held.parameters - held.optimizer - held.gradients)
    return step.found


def _layers(step: _Step, stage: Stage, saved: Saved) -> None:
    """The backward pass of the stage's last and first layers, between which all others lie."""
    setup, copies, tied, grown = step.setup, step.copies, step.tied_gradient(), step.gradients.kept
    alive = step.alive
    last, _ = stage.layers[-1]
    head_gradients = _parameters(stage.head) * grown + tied
    without_head = alive - saved.head_and_loss
    dropped = where(setup.layout.recompute_layers != 0, 0, weight_copy_bytes(last.operations))
    step.add("backward of the last layer", without_head + copies - dropped + step.layer(last), head_gradients)
    first, _ = stage.layers[0]
    kept = layer_saved_bytes(setup, first, where(setup.layout.recompute_layers != 0, 1, 0))
    others = step.others + saved.embedding + kept
    made = (_all_parameters(stage) - _entry(stage) - _parameters(first)) * grown + tied
    step.add("backward of the first layer", others + step.layer(first), made)


def _all_parameters(stage: Stage) -> Number:
    return sum(parameter.elements * times for parameter, times in stage.parameters() if parameter.trains)


def _decoder_lookup(step: _Step, stage: Stage, saved: Saved, grown: Number, tied: Number) -> None:
    """The dense gradient of a decoder's lookup is added to the head's while all that the encoder kept is alive."""
    setup, (encoder, encoders), (decoder, decoders) = step.setup, stage.layers[0], stage.layers[-1]
    recomputed = where(setup.layout.recompute_layers != 0, 1, 0)
    kept = layer_saved_bytes(setup, encoder, recomputed) * encoders + saved.embedding
    copies = where(recomputed, 0, weight_copy_bytes(encoder.operations) * encoders)
    made = (_parameters(decoder) * decoders + _parameters(stage.head)) * grown
    step.add("decoder's embedding backward", step.others + kept + copies, made + 3 * tied)


def _embedding(step: _Step, stage: Stage, saved: Saved, grown: Number, tied: Number) -> None:
    """The embedding's dense gradient; a tied one is made, then added to the head's into a third."""
    assert stage.embedding is not None
    table = stage.embedding.operations[0]
    if not table.backward:
        return
    parameters = _entry(stage)
    made = (_all_parameters(stage) - parameters) * grown
    fresh = parameters * step.gradients.fresh
    others = step.others + saved_bytes(stage.embedding.operations)
    step.add("embedding backward", others + _transit(table, False), made + fresh + tied * 2)


def _optimizer_step(step: _Step) -> None:
    """All gradients, with the optimizer's own temporaries; wide copies replace narrow gradients one by one."""
    setup, held, stage = step.setup, step.held, step.stage
    precision = setup.precision if setup.tuning is None else setup.tuning.adapter
    temporary = setup.optimizer.step_states * precision.state_bytes * (held.dense_parameters + held.expert_parameters)
    if setup.optimizer.step_tensors:
        largest = maximum(*(p.elements / p.copies for p, _ in stage.parameters() if p.trains))
        temporary = temporary + setup.optimizer.step_tensors * precision.state_bytes * largest
    wider = precision.master_bytes - precision.gradient_bytes
    if setup.framework.buffers.master_gradients and wider > 0:
        temporary = temporary + held.gradients / precision.gradient_bytes * wider
    step.add("optimizer step", temporary, _unless_zero(step.grow, held.gradients))
