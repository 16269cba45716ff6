"""The moments of a step at which memory may peak."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from distsim.arrays import Number, maximum, minimum, nothing, plus, product, some, take, where
from distsim.engine.footprint.backward import backward_peak, elements
from distsim.engine.footprint.buffers import (
    ended_unit_bytes,
    flat_end_bytes,
    gone_at_step,
    head_gradient_bytes,
    reduced_unit_bytes,
    waiting_bytes,
    waiting_layer_bytes,
)
from distsim.engine.footprint.built import weights_copied
from distsim.engine.footprint.checkpoint_groups import grouped, highest_places, layers_ahead
from distsim.engine.footprint.moment import AT_LOSS, STEP, Moment
from distsim.engine.footprint.saved import Saved, again_bytes, layer_saved_bytes
from distsim.engine.footprint.stage_step import StageStep, kept_casts, loop_casts, unless_zero
from distsim.engine.footprint.states import States
from distsim.engine.footprint.update import in_backward_bytes, update_bytes
from distsim.engine.jobs.reference import runs_reference
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.last import for_parts_of_last
from distsim.layers.given import bias_gradient_bytes
from distsim.layers.head import TOGETHER, encoder_end_bytes
from distsim.layers.ledger import Block, Operation, parameters_of, saved_bytes, weight_copy_bytes
from distsim.layers.names import DECODER_EMBEDDING, EMBEDDING, HEAD, POSITION_WEIGHT, TEXT


def _transit(operation: Operation, forward: bool) -> Number:
    tensors = operation.transient_forward if forward else operation.transient_backward
    return sum(tensor.size_bytes for tensor in tensors)


@for_parts_of_last
def _parameters(setup: Setup, block: Block | None) -> Number:
    """Elements of a block whose gradients are made; each is asked for at every place of a stage."""
    return 0 if block is None else sum(elements(operation) for operation in block.operations)


def _entry(stage: Stage) -> Number:
    """Parameters whose gradients come last: the embedding's, but for a second stack's, which runs backward first."""
    rows = () if stage.embedding is None else stage.embedding.operations
    return sum(elements(operation) for operation in rows if operation.name != TEXT) - _decoder_tables(rows)


def _decoder_tables(rows: Iterable[Operation]) -> Number:
    """Parameters that a decoder behind an encoder has for itself before its layers: its positions, and a norm."""
    own = [row for row in rows if row.name.startswith(DECODER_EMBEDDING)]
    if not own:
        return 0
    tables = (p for row in rows if row.name == EMBEDDING for p in row.parameters if p.name == POSITION_WEIGHT)
    return sum(map(elements, own)) + sum(p.elements for p in tables if p.trains)


def _other_rows(step: StageStep) -> Number:
    """Bytes of the embedding's gradient that are of other tensor parallel ranks' rows."""
    setup, stage = step.setup, step.stage
    whole = setup.framework.buffers.lookup_gradient_whole and not setup.model.tied_embeddings
    if not whole or stage.embedding is None or not stage.embedding.operations[0].backward:
        return 0
    each = min(setup.trained_precision.gradient_bytes, setup.trained_precision.parameter_bytes)
    return _entry(stage) * (setup.layout.tp - 1) * each


def moments_of(setup: Setup, stage: Stage, held: States, saved: Saved) -> list[Moment]:
    """Candidates for the peak, in the order in which they happen."""
    step = StageStep(setup, stage, held, saved)
    alive = step.alive
    copies = step.copies
    if stage.head is not None:
        loss = stage.head.operations[-1]
        head_copies = weight_copy_bytes(stage.head.operations) + loop_casts(setup, stage.head)
        for name, forward in zip(AT_LOSS, (True, False), strict=True):
            cached = step.cached_copies if forward else 0
            outputs = step.outputs.loss if forward else step.outputs.loss_backward
            step.add(name, plus(plus(alive + copies + head_copies + _transit(loss, forward), cached), outputs))
        if runs_reference(setup) and setup.layout.pp == 1:
            _reference(step, loss, plus(alive + copies + head_copies, step.cached_copies))
        _output_layer(step, stage.head, alive + copies, head_copies)
        if setup.model.residual_streams > 1:
            _last_streams(step, stage.head, alive + copies)
    else:
        step.add("forward end", plus(alive + copies, step.cached_copies))
    if stage.layers:
        _layers(step)
    if stage.embedding is not None:
        if setup.model.encoder_layers:
            _decoder_lookup(step)
        _embedding(step)
    _optimizer_step(step)
    if setup.tuning is not None and setup.framework.adapters.quantises_on_gpu:
        _loading(step, held)
    weights_copied(step, held)
    return step.found


def _loading(step: StageStep, held: States) -> None:
    """Weights whole on the GPU: before they are quantised there, or, where ranks shard them, beside the shards that
    they are cut into (lightning fabric/strategies/fsdp.py, _load_raw_module_state: each rank gathers all weights)."""
    setup, stage = step.setup, step.stage
    whole = sum(p.elements * times for p, times in stage.parameters) * setup.precision.parameter_bytes
    cut = where(setup.layout.zero >= 3, where(sharding_group(setup.layout, "dense") > 1, 1, 0), 0)
    packs = setup.tuning is not None and setup.tuning.quantization is not None
    name = "loading, before weights are quantised" if packs else "loading, all weights on each rank"
    step.add(name, whole - product(1 - cut, held.parameters) - held.optimizer - held.gradients)


def _reference(step: StageStep, loss: Operation, alive: Number) -> None:
    """A reference model at its loss, which sees the micro-batch while all that the other keeps of it is alive (TRL's,
    OpenRLHF's and torchtune's DPO). Pipelines run it ahead, when nothing is kept yet."""
    step.add("reference's loss", plus(alive, saved_bytes([loss]) + _transit(loss, True)))


def _output_layer(step: StageStep, head: Block, alive: Number, casts: Number) -> None:
    """Gradients of a whole output layer's input and weights beside those of the logits; what the loss kept is gone.
    The highest point of short micro-batches whose gradients are added to those of others. Under autocast the gradient
    of the cast weights comes first, and then its wide copy, when the casts are gone."""
    rows = [operation for operation in head.operations if operation.name == HEAD]
    apart = step.setup.kernels.loss not in TOGETHER  # the loss is made of whole logits, and no more predictions follow
    alone = apart and len(rows) == 1 and head.operations[-2:-1] == (rows[0],)
    fresh, precision = step.gradients.fresh, step.setup.trained_precision
    if not alone or (isinstance(fresh, (int, float)) and fresh == 0):
        return
    own, left = elements(rows[0]), plus(alive - saved_bytes(head.operations[-1:]), step.outputs.loss_backward)
    first = precision.activation_bytes if precision.autocast else fresh
    made = plus(plus(_transit(rows[0], False), product(own, first)), casts)
    if precision.autocast:
        made = maximum(made, own * (first + fresh) + rows[0].transient_backward[-1].size_bytes)
    step.add("output layer backward", plus(left, made))
    if step.setup.optimizer.in_backward and not step.setup.model.tied_embeddings:
        step.add("output layer's update", plus(left, own * fresh + in_backward_bytes(step.setup, rows[0].parameters)))


def _last_streams(step: StageStep, head: Block, alive: Number) -> None:
    """Where residual streams are read into one before the output layer: their gradients, all of them wide, beside what
    every layer keeps."""
    rows = tuple(itertools.takewhile(lambda one: one.name != HEAD, head.operations))
    behind = sum(map(elements, head.operations[len(rows) :]))
    own = backward_peak(rows, step.gradients, 0, step.setup.kernels).last
    left = plus(alive - saved_bytes(head.operations), own)
    step.add("backward of the last streams", left, product(behind, step.gradients.kept) + step.tied_gradient())


def _layers(step: StageStep) -> None:
    """The backward pass of the layers at which it may be highest.

    From layer to layer of one kind what is alive rises or falls evenly, so that the last or the first of the kind is
    its highest: the last where gradients, and what waits for them, take no room of their own. Where only the stage's
    first layers are computed again, the last of these counts too.
    """
    stage = step.stage
    again, count = stage.recomputed_layers(step.setup.layout), stage.layer_count
    grows = not isinstance(step.gradients.kept, (int, float)) or step.gradients.kept > 0 or len(stage.flights.split) > 0
    for kind in reversed(range(len(stage.layers))):
        mine = [place for place in range(count) if stage.order[place] == kind]
        places = {mine[-1], mine[0]} if grows or mine[0] == 0 else {mine[-1]}
        places |= highest_places(step.setup, stage, kind) if grouped(step.setup) else set()
        for place in sorted(places, reverse=True):
            layer_backward(step, kind, place)
        if not isinstance(again, int) or 0 < again < count:
            ahead = (place if stage.order[place] == kind else mine[0] for place in range(count))
            last = list(itertools.accumulate(ahead, max, initial=mine[0]))
            layer_backward(step, kind, take(last, again))


def layer_backward(step: StageStep, kind: int, place: Number) -> None:
    """One layer's backward pass, at this place of the stage: what those before it keep, and gradients of those after.

    A layer that is computed again keeps all that its operations keep, and what ``again_bytes`` says.
    """
    setup, stage, made = step.setup, step.stage, step.gradients.kept
    again = stage.recomputed_layers(setup.layout)
    layers, copies, gradients = 0, 0, product(_parameters(setup, stage.head), made) + step.tied_gradient()
    waiting, gone = waiting_bytes(setup, stage), 0
    ahead = stage.layer_count if setup.kernels.residuals == "stacked" else place  # one array holds all layers'
    among_group = layers_ahead(setup, stage, place) if grouped(setup) and isinstance(place, int) else None
    for one, ((block, times), among) in enumerate(zip(stage.layers, stage.among_first, strict=True)):
        small = take(among, minimum(ahead, again))
        small, whole = among_group[one] if among_group else (small, take(among, ahead) - small)
        layers = layers + small * layer_saved_bytes(setup, block, 1) + whole * layer_saved_bytes(setup, block, 0)
        copies = plus(copies, product(whole, kept_casts(setup, block)))
        behind = times - take(among, place + 1)
        gradients = plus(gradients, product(behind * _parameters(setup, block), made))
        gone = plus(gone, product(behind, waiting_layer_bytes(setup, block)))
    if stage.embedding is not None and kind < len(stage.layers) - 1:  # a second stack's lookup ran before this layer
        gradients = (
            gradients + product(_parameters(setup, stage.embedding) - _entry(stage), made) + step.second_lookup()
        )
    block = stage.layers[kind][0]
    others = plus(plus(step.others_at(place), step.saved.embedding), step.offloaded.in_backward(layers))
    made, reduced = reduced_unit_bytes(setup, stage)  # of this layer at its end, of the one before until then
    last, later = head_gradient_bytes(setup, stage)
    before = where(place < stage.layer_count - 1, reduced + later, last)
    whole, held = again_bytes(setup, block)
    own = step.layer(block).beside(where(place < again, whole, 0), where(place < again, held, 0))
    ending = maximum(plus(own, before), made + reduced - ended_unit_bytes(setup, stage))
    own = maximum(own, ending - gone) if some(waiting > 0) else ending  # only the last micro-batch's is reduced
    if setup.optimizer.in_backward:
        own = own + in_backward_bytes(setup, parameters_of(block.operations))
    shared = bias_gradient_bytes(setup.context(), decoder=kind > 0)  # of all layers of a stack behind this one
    others = plus(others, 0 if nothing(shared) else where(place < stage.layer_count - 1, shared, 0))
    step.add(_layer_name(place, stage.layer_count), plus(others, copies) + own, gradients)


def _layer_name(place: Number, layers: int) -> str:
    """Where the peak is, in words."""
    if not isinstance(place, int):
        return ""
    named = {0: "the first layer", layers - 1: "the last layer"}
    return f"backward of {named.get(place, f'layer {place + 1} of {layers}')}"


def _all_parameters(stage: Stage) -> Number:
    return sum(parameter.elements * times for parameter, times in stage.parameters if parameter.trains)


def _decoder_lookup(step: StageStep) -> None:
    """The dense gradient of a decoder's lookup is added to the head's while all that the encoder kept is alive, and
    the gradient of what it gave the decoder."""
    setup, stage = step.setup, step.stage
    (encoder, encoders), (decoder, decoders) = stage.layers[0], stage.layers[-1]
    recomputed = where(setup.layout.recompute_layers != 0, 1, 0)
    kept = layer_saved_bytes(setup, encoder, recomputed) * encoders + step.saved.embedding
    copies = where(recomputed, 0, weight_copy_bytes(encoder.operations) * encoders)
    assert stage.head is not None and stage.embedding is not None
    behind = _parameters(setup, decoder) * decoders + _parameters(setup, stage.head)
    made = (behind + _parameters(setup, stage.embedding) - _entry(stage)) * step.gradients.kept
    kept = kept + step.stream(encoder) + encoder_end_bytes(stage.head)
    made = made + step.second_lookup() + step.tied_gradient() + step.summed(lookups=1)
    step.add("decoder's embedding backward", step.others + kept + copies, made)


def _embedding(step: StageStep) -> None:
    """The embedding's dense gradient, beside others of the same matrix: the head's, a decoder's lookup's."""
    setup, stage = step.setup, step.stage
    assert stage.embedding is not None
    table = stage.embedding.operations[0]
    if not table.backward:
        return
    parameters = _entry(stage)
    made = (_all_parameters(stage) - parameters) * step.gradients.kept
    fresh = parameters * step.gradients.fresh
    others = step.others_at(-1) + saved_bytes(stage.embedding.operations)
    others = plus(others, _other_rows(step))
    more = step.second_lookup() + step.summed(lookups=2 if setup.model.encoder_layers else 1)
    joined = flat_end_bytes(setup, stage)  # these among what it is joined of
    joined = joined if nothing(joined) else maximum(plus(joined, -(fresh + more)), 0)
    step.add("embedding backward", plus(others + _transit(table, False), joined), made + fresh + more)
    if step.setup.optimizer.in_backward:
        step.add("embedding's update", others + in_backward_bytes(step.setup, table.parameters), made + fresh)


def _optimizer_step(step: StageStep) -> None:
    """All gradients, with the optimizer's own temporaries."""
    setup, held, stage = step.setup, step.held, step.stage
    gone = gone_at_step(setup, stage, held) + where(setup.layout.pp == 1, waiting_bytes(setup, stage), 0)
    made = unless_zero(step.grow, held.gradients)
    if not nothing(step.outputs.step):
        step.add("outputs put together", step.outputs.together, made)
    own = update_bytes(setup, stage, held.gradients)
    rows = where(setup.layout.zero >= 2, 0, _other_rows(step))
    step.add(STEP, plus(plus(own - gone, rows), step.outputs.step), made, own)
