"""The moments of a step at which memory may peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distsim.arrays import Number, maximum, minimum, some, take, where
from distsim.engine.exchanges.exchange import exchange_of, gradients_wait
from distsim.engine.footprint.backward import Gradients, backward_peak, elements
from distsim.engine.footprint.buffers import head_gradient_bytes, reduced_unit_bytes, resharded_bytes, waiting_bytes
from distsim.engine.footprint.offloaded import Offloaded
from distsim.engine.footprint.saved import Saved, layer_saved_bytes
from distsim.engine.footprint.states import States, sharding_group
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.layers.ledger import Block, Operation, saved_bytes, weight_copy_bytes

STEP = "optimizer step"


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
    churning: Number
    """All activations and transients, also those in the place of gradients to come."""

    @property
    def total(self) -> Number:
        """Everything but buffers and overhead."""
        return self.states + self.activations


def highest(moments: Sequence[Moment], slack: float, least: Number = 0.0) -> Moment:
    """The peak of what an allocator holds that loses a share ``slack`` of what comes and goes, ``least`` at all times.

    For arrays of layouts its name is left open, and that loss is among its activations.
    """
    if all(isinstance(part, (int, float)) for moment in moments for part in (moment.states, moment.activations, least)):
        return max(moments, key=lambda moment: moment.total + maximum(slack * moment.churning, least))
    held = maximum(*(moment.activations + maximum(slack * moment.churning, least) for moment in moments))
    return moments[0]._replace(name="", activations=held, churning=0)


def _waits(setup: Setup) -> Number:
    """Whether whole gradients wait for the last micro-batch, and no shards of them are there until then; peaks of
    pipelines say nothing of it. Plain where no layout's do, so that arrays do not grow."""
    if not setup.framework.buffers.gathers_copies:
        return False
    waits = gradients_wait(setup, exchange_of(setup)) & (setup.layout.pp == 1)
    return waits if some(waits) else False


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
    """Cast weights that layers which are not recomputed keep."""
    return sum(
        (times - again) * weight_copy_bytes(block.operations)
        for (block, times), again in zip(stage.layers, stage.recomputed(setup.layout), strict=True)
    )


Peaks = dict[tuple[Any, ...], tuple[Block, Block, Number]]


class _Last:
    """Peaks of the layers of the setup that was asked for last: its stages share blocks, which are known by identity
    and kept with their peaks, so that no other can take their place."""

    known: tuple[Setup, Peaks] | None = None


class StageStep:
    """One stage's step, with what all its moments share."""

    def __init__(self, setup: Setup, stage: Stage, held: States, saved: Saved) -> None:
        self.setup, self.stage, self.held, self.saved = setup, stage, held, saved
        y, buffers = setup.layout, setup.framework.buffers
        precision = setup.precision if setup.tuning is None else setup.tuning.adapter
        in_place = precision.gradient_bytes <= precision.parameter_bytes
        grow = where(y.micro_batches > 1, 0, 1) if buffers.gradients_grow and in_place else 0
        self.grow: Number = where(waits := _waits(setup), 1, grow)
        whole = held.dense_parameters + held.expert_parameters
        self.per_element: Number = held.gradients / maximum(whole, 1)
        """Bytes of kept gradient per parameter of the stage: less than a whole one where ZeRO shards it."""
        fresh = min(precision.gradient_bytes, precision.parameter_bytes)
        accumulates = int(buffers.gradients_grow)  # else the product is added where it is kept
        shards = where(waits, 0, self.grow)  # each takes the place of a whole one that waited, and is no larger
        self.gradients = Gradients(_unless_zero(shards, self.per_element), fresh * accumulates)
        self.copies = _weight_copies(setup, stage)
        self.offloaded = Offloaded(setup, stage, saved)
        stays = self.offloaded.stays
        layers = self.offloaded.forward_end() + stays * (stage.in_flight - 1)
        ends = saved.embedding * stage.in_flight + saved.head_and_loss * stage.head_in_flight
        self.alive: Number = layers + ends
        """Bytes kept for backward when the last forward of the peak has ended."""
        self.others: Number = stays * (stage.in_flight - 1) + ends - saved.embedding - saved.head_and_loss
        """What micro-batches other than the one that runs backward keep."""
        self.found: list[Moment] = []

    def add(self, name: str, activations: Number, alive: Number = 0) -> None:
        """A moment with so many bytes of activations and of gradients that autograd has made so far."""
        gradients = self.held.gradients
        beyond = activations + alive - _unless_zero(self.grow, gradients)
        states = self.held.parameters + self.held.optimizer + gradients
        self.found.append(Moment(name, beyond, gradients, states, activations))

    def stream(self) -> Number:
        """Gradient of the residual stream."""
        boundary = self.stage.layers[0][0].boundary
        return 0 if boundary is None else boundary.size_bytes

    def layer(self, block: Block) -> Number:
        """The highest point of one layer's backward pass: what it keeps, its gradients, and what is in transit."""
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
        return backward_peak(block.operations, self.gradients, setup.layout.selective, setup.kernels, self.stream())

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
    step = StageStep(setup, stage, held, saved)
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
        _layers(step, stage)
    if stage.embedding is not None:
        if setup.model.encoder_layers:
            _decoder_lookup(step, stage, saved, grown, tied)
        _embedding(step, stage, saved, grown, tied)
    _optimizer_step(step)
    if setup.tuning is not None and setup.framework.adapters.quantises_on_gpu:
        whole = sum(p.elements * times for p, times in stage.parameters) * setup.precision.parameter_bytes
        step.add("loading, before weights are quantised", whole - held.parameters - held.optimizer - held.gradients)
    return step.found


def _layers(step: StageStep, stage: Stage) -> None:
    """The backward pass of the layers at which it may be highest.

    From layer to layer of one kind what is alive rises or falls evenly, so that the last or the first of the kind is
    its highest: the last where gradients take no room of their own. Where only the stage's first layers are computed
    again, the last of these counts too.
    """
    again, count = stage.recomputed_layers(step.setup.layout), stage.layer_count
    grows = not isinstance(step.gradients.kept, (int, float)) or step.gradients.kept > 0
    for kind in reversed(range(len(stage.layers))):
        mine = [place for place in range(count) if stage.order[place] == kind]
        for place in sorted({mine[-1], mine[0]} if grows or mine[0] == 0 else {mine[-1]}, reverse=True):
            layer_backward(step, stage, kind, place)
        if not isinstance(again, int) or 0 < again < count:
            last = [max((place for place in mine if place < end), default=mine[0]) for end in range(count + 1)]
            layer_backward(step, stage, kind, take(last, again))


def layer_backward(step: StageStep, stage: Stage, kind: int, place: Number) -> None:
    """One layer's backward pass, at this place of the stage: what those before it keep, and gradients of those after.

    A layer that is computed again keeps its input beside all that its operations keep.
    """
    setup, made, again = step.setup, step.gradients.kept, stage.recomputed_layers(step.setup.layout)
    layers, copies, gradients = 0, 0, _parameters(stage.head) * made + step.tied_gradient()
    for (block, times), among in zip(stage.layers, stage.among_first, strict=True):
        small = take(among, minimum(place, again))
        whole = take(among, place) - small
        layers = layers + small * layer_saved_bytes(setup, block, 1) + whole * layer_saved_bytes(setup, block, 0)
        copies = copies + whole * weight_copy_bytes(block.operations)
        gradients = gradients + (times - take(among, place + 1)) * _parameters(block) * made
    if stage.embedding is not None and kind < len(stage.layers) - 1:  # a second stack's lookup ran before this layer
        gradients = gradients + (_parameters(stage.embedding) - _entry(stage)) * made
    block = stage.layers[kind][0]
    others = step.others + step.saved.embedding + step.offloaded.in_backward(layers)
    made, reduced = reduced_unit_bytes(setup, stage)  # of this layer at its end, of the one before until then
    last, later = head_gradient_bytes(setup, stage)
    before = where(place < stage.layer_count - 1, reduced + later, last)
    own = step.layer(block) + where(place < again, layer_saved_bytes(setup, block, 1), 0)
    own = maximum(own + before, made + reduced)
    step.add(_layer_name(place, stage.layer_count), others + copies + own, gradients)


def _layer_name(place: Number, layers: int) -> str:
    """Where the peak is, in words."""
    if not isinstance(place, int):
        return ""
    named = {0: "the first layer", layers - 1: "the last layer"}
    return f"backward of {named.get(place, f'layer {place + 1} of {layers}')}"


def _all_parameters(stage: Stage) -> Number:
    return sum(parameter.elements * times for parameter, times in stage.parameters if parameter.trains)


def _decoder_lookup(step: StageStep, stage: Stage, saved: Saved, grown: Number, tied: Number) -> None:
    """The dense gradient of a decoder's lookup is added to the head's while all that the encoder kept is alive."""
    setup, (encoder, encoders), (decoder, decoders) = step.setup, stage.layers[0], stage.layers[-1]
    recomputed = where(setup.layout.recompute_layers != 0, 1, 0)
    kept = layer_saved_bytes(setup, encoder, recomputed) * encoders + saved.embedding
    copies = where(recomputed, 0, weight_copy_bytes(encoder.operations) * encoders)
    made = (_parameters(decoder) * decoders + _parameters(stage.head)) * grown
    step.add("decoder's embedding backward", step.others + kept + copies, made + 3 * tied)


def _embedding(step: StageStep, stage: Stage, saved: Saved, grown: Number, tied: Number) -> None:
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


def _sharded(setup: Setup, stage: Stage) -> Number:
    """Trained elements of which a rank has the master copy."""
    zero = setup.layout.zero
    ranks = {group: where(zero >= 1, sharding_group(setup.layout, group), 1) for group in ("dense", "expert")}
    return sum(p.elements * times / ranks[p.group] for p, times in stage.held() if p.trains)


def _optimizer_step(step: StageStep) -> None:
    """All gradients, with the optimizer's own temporaries; wide copies replace narrow gradients one by one."""
    setup, held, stage = step.setup, step.held, step.stage
    precision = setup.precision if setup.tuning is None else setup.tuning.adapter
    temporary = setup.optimizer.step_states * precision.state_bytes * _sharded(setup, stage)
    if setup.optimizer.step_tensors:
        largest = maximum(*(p.elements / p.copies for p, _ in stage.parameters if p.trains))
        temporary = temporary + setup.optimizer.step_tensors * precision.state_bytes * largest
    wider = precision.master_bytes - precision.gradient_bytes
    if setup.framework.buffers.master_gradients and wider > 0:
        temporary = temporary + held.gradients / precision.gradient_bytes * wider
    if setup.framework.buffers.shard_gradients and wider > 0 and "optimizer" not in setup.offload:
        temporary = temporary + _sharded(setup, stage) * precision.master_bytes
    gone = resharded_bytes(setup, stage) + where(setup.layout.pp == 1, waiting_bytes(setup, stage), 0)
    step.add(STEP, temporary - gone, _unless_zero(step.grow, held.gradients))
