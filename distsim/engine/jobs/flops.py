"""Model and hardware FLOPs of a setup, by the conventions in formulas/flops.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from distsim.arrays import Number, minimum
from distsim.engine.jobs.lacking import wide_units
from distsim.engine.jobs.reference import runs_reference
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.attention import chosen_keys
from distsim.formulas.flops import model_flops_per_token
from distsim.last import for_last
from distsim.layers.attention_kernel import reads_chosen, reads_window
from distsim.layers.layer_inputs import NAME as LAYER_INPUTS
from distsim.layers.ledger import Parameter
from distsim.layers.names import CROSS_KV, DECODER, EMBEDDING_WEIGHT, IDLE, LOOKED_UP, PROJECTIONS, TOWER_KIND, VISION
from distsim.layers.network import layer_kinds, network_parameters, plain_context
from distsim.layers.prediction import positions
from distsim.layers.streams import NAME as STREAMS
from distsim.specs.model import Model

if TYPE_CHECKING:
    from distsim.layers.compressed_attention import Seen

FROZEN_SHARE = 2 / 3
"""Work of a frozen matrix over that of a trained one: output and input gradient, no weight gradient."""

REFERENCE_SHARE = 1 / 3
"""Work of a reference model over that of one that trains: its forward, no backward of twice that."""

FIRST_CONVOLUTION = "embedding.frames.first."
"""Its parameters see every frame of sound, of which there are several for a token."""
ONCE_PER_SEQUENCE = ("head.pooler", "head.sentence", "head.unused")
"""Parameters of the head that a token does not pass through."""


@for_last
def active_parameters(setup: Setup) -> Number:
    """Parameters that one token passes through, without the input embedding; a tied matrix counts as the head.

    Frozen ones count two thirds: of the three products of a trained matrix one is the weight's gradient. Several
    conventions of one run read them.
    """
    model, total, layers = setup.model, 0.0, layer_kinds(setup.model)
    routed = model.experts.working_per_token / model.experts.count if model.experts is not None else 1.0
    used = model.model_copy(update={"mtp_repeated": False}) if model.mtp_repeated else model
    for part, (parameters, times) in _parts(setup, used).items():
        for parameter in parameters:
            if part == "embedding" and not _works(model, parameter):
                continue
            if parameter.name in LOOKED_UP or parameter.name.endswith(IDLE) or is_vision(part, parameter):
                continue
            share = (routed if parameter.group == "expert" else 1) * (1 if parameter.trains else FROZEN_SHARE)
            total += times * parameter.elements * share * _token_share(setup, part, parameter, part in layers)
    return total + model.mtp_trained * model.vocab * (
        model.embedding_width or model.hidden
    )  # each uses the output layer


def is_vision(part: str, parameter: Parameter) -> bool:
    """Whether a parameter belongs to a vision tower, which patches pass and tokens do not."""
    return part.startswith(TOWER_KIND) or parameter.name.startswith(VISION)


def _parts(setup: Setup, model: Model) -> dict[str, tuple[list[Parameter], int]]:
    """The whole network's parameters, adapters on the framework's own products among them; of a model that trains as it
    is they are kept, since many runs share one."""
    if setup.tuning is None:
        return _untuned_parts(model)
    ctx = plain_context(model, setup.tuning)
    return network_parameters(ctx._replace(kernels=setup.kernels, tower_kernels=setup.tower_kernels))


@functools.lru_cache(maxsize=512)
def _untuned_parts(model: Model) -> dict[str, tuple[list[Parameter], int]]:
    return network_parameters(plain_context(model))


def _works(model: Model, parameter: Parameter) -> bool:
    """Whether tokens are multiplied with a parameter of the embedding: the output layer's, squares, sound."""
    if parameter.name == EMBEDDING_WEIGHT:
        return model.tied_embeddings
    return parameter.kind == "matrix" and parameter.name.startswith((*PROJECTIONS, LAYER_INPUTS, STREAMS))


def _token_share(setup: Setup, part: str, parameter: Parameter, layer: bool) -> Number:
    """Share of the tokens of ``--seq`` that pass a matrix: a decoder behind an encoder reads others, and the head of an
    encoder some positions only."""
    behind = (setup.model.decoder_context or 0) / setup.layout.seq
    if parameter.name.startswith(FIRST_CONVOLUTION) and setup.model.frames:
        return setup.model.frames.per_token
    if setup.model.text:  # images' tokens count; of head and loss one token of each sequence passes
        return {"text": setup.model.text.context / setup.layout.seq, "head": 0.0}.get(part, 1.0)
    if part == "embedding" and parameter.name != EMBEDDING_WEIGHT:
        return 1.0
    if layer:
        return behind if part.startswith(DECODER) and not parameter.name.startswith(CROSS_KV) else 1.0
    if parameter.name.startswith(ONCE_PER_SEQUENCE):
        return 0.0
    context = setup.context()
    return behind if setup.model.encoder_layers else positions(context) / context.layout.tokens


def attended(model: Model, seq: Number, reach: Number) -> tuple[Number, Number]:
    """Layers with attention, and the keys that a token of ``--seq`` meets in each; ``reach`` of its own sequence. Of
    two stacks both together, as one layer; layers whose heads are twice as wide count twice."""
    if text := model.text:
        own = text.layers * text.context**2 / seq * text.hidden / (model.heads * model.head_dim)
        return 1, (model.layers - text.layers) * reach + own
    if kind := model.disentangled:
        reach = reach + kind.terms * kind.rows / 2  # a score with each distance, and no sum over them
    if not model.encoder_layers:
        own = model.mtp_pattern.count("*") if model.mtp_pattern else 1
        return model.attention_layers * _head_share(model) + model.mtp_trained * own * _value_share(model), reach
    behind = model.decoder_context or 0
    decoders = model.layers - model.encoder_layers
    return 1, model.encoder_layers * seq + decoders * behind / seq * (behind * reach / seq + seq)


def _value_share(model: Model) -> float:
    """Width of queries and values together over twice that of queries."""
    latent = model.latent_attention
    width = model.value_dim if latent is None else latent.value_dim
    return 1.0 if width is None else (1 + width / model.head_dim) / 2


def _head_share(model: Model) -> float:
    """Width of all heads of a mean layer over the model's own, queries and values together."""
    values = _value_share(model)
    if model.windowed is None and model.global_attention is None and model.sizes is None:
        return values
    own = [model.in_layer(layer) for layer in range(model.layers) if model.mixer(layer) != "mlp"]
    widths = [one.heads * (one.head_dim / model.head_dim if model.global_attention else 1) for one in own]
    return values * sum(widths) / len(own) / model.heads


def trained_parameters(setup: Setup) -> Number:
    """Parameters of the whole network that have a gradient."""
    parts = _parts(setup, setup.model).values()
    return sum(times * p.elements for parameters, times in parts for p in parameters if p.trains)


def products_words(setup: Setup) -> str:
    """FLOPs of one token's products with weights, in words."""
    words = "6 N" if setup.tuning is None else "4 N frozen + 6 N trained"
    return words + " + 2 N reference" * runs_reference(setup)


def attention_words(setup: Setup) -> str:
    """How FLOPs of attention are counted, in words; none where no layer attends."""
    if not attended(setup.model, setup.layout.seq, 1)[0]:
        return ""
    return "12 L H K, attention to chosen keys" if reads_less(setup) else "12 L H S, dense attention"


def flops_convention(setup: Setup) -> str:
    """What a model FLOP is here, in words."""
    attends = attention_words(setup)
    inside = " inside samples" if setup.layout.sample_tokens and attends else ""
    inside += " + the vision tower's" if setup.model.shown_tower else ""
    return f"{products_words(setup)} (no input embedding){' + ' * bool(attends)}{attends}{inside}"


def reads_less(setup: Setup) -> bool:
    """Whether attention reads chosen keys alone, or those of a window and compressed ones."""
    setting = setup.model, setup.layout, setup.kernels
    return reads_chosen(*setting) or reads_window(*setting)


def reach_of(setup: Setup) -> Number:
    """Tokens of its own sequence that a token attends to, as FLOPs are counted: the whole square of what kernels
    read."""
    seen, latent, table = setup.layout.together, setup.model.latent_attention, setup.model.compressed_attention
    if table and reads_less(setup):
        from distsim.layers.compressed_attention import most_keys

        return _mean_keys(setup.model, lambda layer: most_keys(table, layer, seen))
    return minimum(seen, latent.index_keys) if latent and reads_less(setup) else seen


def _mean_keys(model: Model, seen: Callable[[int], Seen]) -> Number:
    """Keys of a query in the mean of all layers."""
    return sum(sum(seen(layer)) for layer in range(model.layers)) / model.layers


def model_flops(setup: Setup) -> Number:
    """Model FLOPs of one token, a reference model's forward pass included."""
    return _flops_to(setup, *attended(setup.model, setup.layout.seq, reach_of(setup)))


def _flops_to(setup: Setup, layers: Number, keys: Number) -> Number:
    """FLOPs of one token that meets so many keys in each of so many layers."""
    model = setup.model
    found = model_flops_per_token(active_parameters(setup), layers, model.heads, model.head_dim, keys)
    if model.shown_tower is not None:
        from distsim.engine.jobs.tower_flops import tower_flops

        found = found + tower_flops(setup)
    if not runs_reference(setup):
        return found
    whole = active_parameters(replace(setup, tuning=None))
    return found + REFERENCE_SHARE * model_flops_per_token(whole, layers, model.heads, model.head_dim, keys)


def least_flops(setup: Setup) -> Number:
    """FLOPs of one token that no kernel can avoid: attention to what it sees within its windows, nothing recomputed."""
    model, seen = setup.model, setup.layout.together
    latent = model.latent_attention
    reach = _least_reach(model, seen)
    if latent and reads_less(setup):
        reach = chosen_keys(seen, latent.index_keys)
    if table := model.compressed_attention:
        from distsim.layers.compressed_attention import keys_seen

        reach = _mean_keys(model, lambda layer: keys_seen(table, layer, seen))
    return _flops_to(setup, *attended(model, setup.layout.seq, reach))


def _least_reach(model: Model, seen: Number) -> Number:
    """Keys that a mean token has to meet in a mean layer: those of its window where the layer has one, and of causal
    attention those before it."""
    whole = seen / 2 if model.causal else seen
    if model.window is None:
        return whole
    span = minimum(seen, model.window)
    within = chosen_keys(span if model.window_chunks else seen, model.window) if model.causal else span
    share = sum(map(model.is_windowed, range(model.layers))) / model.layers
    return share * within + (1 - share) * whole


def peak_of(setup: Setup) -> float | None:
    """The dense rate of the recipe's products on the datasheet; bf16 where it states no narrower one."""
    peak = setup.accelerator.peak
    units = wide_units(peak, setup.precision.math)
    return getattr(peak, units) if units else None
