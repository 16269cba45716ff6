"""What a model makes once and gives to all its layers: where these are computed again it lives until their backward."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, where
from distsim.layers.core_attention import rope_table
from distsim.layers.ledger import Context, Tensor
from distsim.layers.norm import norm
from distsim.units import MASK_BYTES

POSITIONAL = ("gpt2", "xglm")
"""Decoders of transformers whose layers take masks as positional arguments, as those behind an encoder do."""
NORMED = ("modernbert", "modernbert-decoder")
"""Encoders, and decoders made of them, whose first layer has its norm before it, as that of the embedding."""


class Given(NamedTuple):
    """Tensors that recomputed layers are given beside their input, for one micro-batch on one rank."""

    saved: tuple[Tensor, ...] = ()
    """Positional arguments, which autograd saves."""
    held: tuple[Tensor, ...] = ()
    """Keyword arguments, which only the closure that runs a layer again holds."""

    @property
    def saved_bytes(self) -> Number:
        """Bytes that autograd saves."""
        return sum(tensor.size_bytes for tensor in self.saved)

    @property
    def held_bytes(self) -> Number:
        """Bytes beyond that."""
        return sum(tensor.size_bytes for tensor in self.held)


def given(ctx: Context) -> Given:
    """What all layers of a model share that computes some of them again (torch 2.13 utils/checkpoint.py)."""
    layout, model = ctx.layout, ctx.model
    never = isinstance(layout.recompute_layers, int) and layout.recompute_layers == 0
    if never:
        return Given()
    if not ctx.kernels.recompute_given:
        return Given((), _cache(ctx))
    again = where(layout.recompute_layers != 0, 1, 0)
    masks = tuple(_scaled(tensor, again) for tensor in (*_masks(ctx), *_biases(ctx)))
    tables = tuple(_scaled(tensor, recomputes_all(ctx)) for tensor in rotary_tables(ctx))
    beside = (*_cache(ctx), *(_scaled(tensor, again) for tensor in _leaf(ctx)))
    if model.disentangled:
        from distsim.layers.disentangled import given_by_name

        beside += tuple(_scaled(tensor, again) for tensor in given_by_name(ctx))
    if model.encoder_layers or model.family in POSITIONAL:
        ends = tuple(_scaled(tensor, again) for tensor in _encoder_end(ctx))
        return Given((*masks, *ends), (*tables, *beside))
    return Given((), (*masks, *tables, *beside))


def _cache(ctx: Context) -> tuple[Tensor, ...]:
    """Keys and values of all layers of a stage that give them to a cache; others' are what autograd keeps."""
    model, layout = ctx.model, ctx.layout
    if not ctx.kernels.recompute_caches:
        return ()
    wide = model.kv_heads * model.head_dim / layout.tp * layout.tokens
    return (
        Tensor("layers.cache", 2 * wide * model.layers / layout.pp * recomputes_all(ctx), ctx.activation, "2 l s b k"),
    )


def recomputes_all(ctx: Context) -> Number:
    """1 where no layer is left whose autograd graph keeps what all are given."""
    return where(ctx.layout.recompute_layers < 0, 1, 0)


def rotary_tables(ctx: Context) -> tuple[Tensor, ...]:
    """Cosines and sines that all layers share."""
    kernels = ctx.kernels
    if ctx.model.positions != "rotary" or kernels.rope != "eager" or kernels.rope_tables_per_layer:
        return ()
    return (_scaled(rope_table(ctx), kernels.rope_tables),)


def kept_tables(ctx: Context) -> tuple[Tensor, ...]:
    """The same where autograd saves them: for layers that are not computed again."""
    if not ctx.kernels.recompute_given:
        return rotary_tables(ctx)
    return tuple(_scaled(tensor, 1 - recomputes_all(ctx)) for tensor in rotary_tables(ctx))


def first_norm(ctx: Context) -> tuple[Tensor, ...]:
    """What the first layer's norm keeps where that layer is computed again and its norm, which is before it, is not."""
    if ctx.model.family not in NORMED:
        return ()
    rows, width = ctx.sharded_tokens, ctx.model.hidden
    made = norm(ctx, "embedding.norm", rows, width, Tensor("embedding.output", rows * width, ctx.stream_bytes, "s b h"))
    return tuple(_scaled(tensor, where(ctx.layout.recompute_layers != 0, 1, 0)) for tensor in made.saved)


def _scaled(tensor: Tensor, factor: Number) -> Tensor:
    return tensor._replace(elements=tensor.elements * factor)


def _masks(ctx: Context) -> tuple[Tensor, ...]:
    """Dense masks of causal layers: one for layers with a window and one for those without where scores are composed,
    in the residual stream's format; else boolean ones of windows that a sequence fills."""
    model, side = ctx.model, ctx._replace(layer=ctx.model.layers - 1).side
    layout = side.layout
    kinds = {model.is_windowed(layer) for layer in range(model.layers) if not model.sees_all(layer)}
    pairs = layout.micro_batch * layout.seq * layout.seq
    if ctx.layout.attention != "flash" or model.composed_attention:
        return (Tensor("layers.masks", pairs * len(kinds), ctx.stream_bytes, "b s s"),)
    filled = where(layout.seq >= model.window, 1, 0) if True in kinds and model.window else 0
    return (Tensor("layers.masks", pairs * filled, MASK_BYTES, "b s s mask"),)


def bias_gradient_bytes(ctx: Context, *, decoder: bool) -> Number:
    """Bytes of the gradient of T5's biases, to which all layers of a stack add before the first of them ends."""
    if ctx.kernels.attention_mask != "bias":
        return 0
    own = ctx._replace(layer=ctx.model.layers - 1).side.layout.seq if decoder else ctx.layout.seq
    return ctx.model.heads / ctx.layout.tp * own * own * ctx.precision.stream_bytes


def _biases(ctx: Context) -> tuple[Tensor, ...]:
    """T5's biases per head and distance of each stack, and zeros in their place between the stacks, which are as wide
    as the scores."""
    model, layout = ctx.model, ctx.layout
    if ctx.kernels.attention_mask != "bias":
        return ()
    own, behind = layout.seq, ctx._replace(layer=model.layers - 1).side.layout.seq
    heads, both = model.heads / layout.tp, int(model.encoder_layers > 0)
    pairs = own * own + both * behind * behind
    return (
        Tensor("layers.distance_biases", heads * pairs, ctx.precision.stream_bytes, "a s s/t"),
        Tensor("layers.cross_biases", heads * both * behind * own, ctx.activation, "a s s/t"),
    )


def _encoder_end(ctx: Context) -> tuple[Tensor, ...]:
    """What a decoder's layers read of an encoder, where autocast has each of them keep a cast of it instead."""
    if not ctx.model.encoder_layers or not ctx.precision.autocast:
        return ()
    return (Tensor("encoder.given", ctx.sharded_tokens * ctx.model.hidden, ctx.precision.stream_bytes, "s b h"),)


def _leaf(ctx: Context) -> tuple[Tensor, ...]:
    """The output of a frozen lookup, which is made to have a gradient and to which positions are added, or dropout is
    applied, before layers read it."""
    model, tuning = ctx.model, ctx.tuning
    if tuning is None or tuning.trains("embedding") or not (model.positions == "learned" or model.embedding_dropout):
        return ()
    return (Tensor("embedding.lookup", ctx.layout.tokens * model.hidden, ctx.stream_bytes, "s b h"),)
