"""Core attention: scores, softmax and weighted sum, as one kernel or as products with the score matrix in memory."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, nothing, round_up, where
from distsim.formulas.attention import attention_flops
from distsim.formulas.compute import BACKWARD_PRODUCTS, FORWARD_PRODUCTS
from distsim.layers.attention_kernel import (
    all_keys,
    casts_keys,
    composed,
    math_kernel,
    sdpa_choice,
    summed_apart,
    viewed_again,
    views_values,
    with_mask,
)  # fmt: skip
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.names import DROPOUT_MASK, PROBABILITIES, SOFTCAP, WIDE_PROBABILITIES
from distsim.specs.kernels import Kernels
from distsim.specs.layout import Layout
from distsim.units import FP32_BYTES, INDEX_BYTES, MASK_BYTES

LSE_BYTES = 4  # flash and memory-efficient kernels keep one fp32 log-sum-exp per head and query token
EFFICIENT_ROWS = 32  # the memory-efficient kernel pads its log-sum-exp to a multiple of this
RNG_BYTES = 24  # seed and offset of a flash call: uint64[2] and one more
COMPOSED = f"attention{WIDE_PROBABILITIES}"
FLASH_BACKWARD = BACKWARD_PRODUCTS / FORWARD_PRODUCTS
"""Work of flash attention's backward over its forward's."""


def key_tokens(ctx: Context) -> Number:
    """Keys that a query can see at most: its sequence, or packed sample of it, or the sliding window."""
    if ctx.keys is not None:
        return ctx.keys
    own = ctx.layout.seq if ctx.kernels.packed == "masked" else ctx.layout.together
    return minimum(own, ctx.model.window) if ctx.model.is_windowed(ctx.layer) else own


class Heads(NamedTuple):
    """What core attention reads: queries, keys and values of ``count`` heads on one rank."""

    query: Tensor
    key: Tensor
    value: Tensor
    count: Number
    width: Number
    value_width: Number
    value_projection: Number
    """Elements of the projection that values may be a view of."""
    shared: Number = 1
    """Heads of queries, of those on this rank, that share a head of keys."""


def core_attention(ctx: Context, read: Heads) -> list[Operation]:
    """Rows of core attention."""
    layout = ctx.layout
    query, key, value, heads, width, value_width, value_projection, shared = read
    queries = layout.seq / layout.cp
    output = Tensor("attention.output", layout.tokens * heads * value_width, ctx.activation, "s b a d/t")
    if composed(ctx):
        return _products(ctx, read, output, math_kernel(ctx))
    flops = attention_flops(layout.micro_batch * heads * queries * key_tokens(ctx), width, value_width)
    if views_values(ctx):
        value = value._replace(elements=value_projection)
    own = key.elements
    key, value, mask = with_mask(ctx, query, key, value)
    saved = [output]
    packed = layout.seq / layout.together if layout.sample_tokens and ctx.kernels.packed == "lengths" else 1
    padded = layout.tokens
    if ctx.kernels.sdpa and sdpa_choice(ctx) == "efficient":
        padded = layout.micro_batch * round_up(queries, EFFICIENT_ROWS)
    saved.append(Tensor("attention.lse", padded * heads, LSE_BYTES, "s b a/t"))
    if ctx.kernels.sdpa:
        saved.append(Tensor("attention.rng", 1, RNG_BYTES, "seed"))
    if ctx.model.attention_sinks and ctx.kernels.sinks_after:
        saved += _scaled(ctx, layout.tokens * heads, value_width)
    return [
        _beside_view(ctx, heads_operation(ctx, query, key, value, own), value, value_projection),
        Operation(
            "attention.core",
            "attention",
            flops,
            FLASH_BACKWARD * flops,
            query.size_bytes + key.size_bytes + value.size_bytes,
            output.size_bytes,
            (layout.micro_batch * packed, heads, queries / packed, key_tokens(ctx), width, value_width),
            (*saved, *mask),
            output,
            transient_backward=(output, query, key, value, *summed_apart(ctx, query, key, value, own, shared)),
            recompute_class="core_attention",
            role="core",
            causal=ctx.keys is None and not ctx.model.sees_all(ctx.layer),
        ),
    ]


def _beside_view(ctx: Context, operation: Operation, value: Tensor, projection: Number) -> Operation:
    """What heads keep, with the rest of the projection that values are a view of where a checkpoint holds it."""
    viewed = viewed_again(ctx)
    if nothing(viewed):
        return operation
    rest = where(viewed, maximum(projection - value.elements, 0), 0)
    return operation._replace(saved=(*operation.saved, value._replace(name="attention.beside_value", elements=rest)))


def heads_operation(ctx: Context, query: Tensor, key: Tensor, value: Tensor, own: Number) -> Operation:
    """Splitting into heads and rotating; keeps queries, keys and values, also under selective recompute.

    ``own`` is the elements of keys before any copy to all heads: as such they are kept by the layer that made them.
    """
    borrows = ctx.model.borrows_keys(ctx.layer)
    rotates = ctx.model.positions == "rotary"
    moved = (query.size_bytes + key.size_bytes * (not borrows)) * rotates
    if borrows:
        value = value._replace(elements=where(value.elements > own, value.elements, 0))
        key = key if casts_keys(ctx) else key._replace(elements=where(key.elements > own, key.elements, 0))
    return Operation(
        "attention.heads",
        "elementwise",
        bytes_read=moved,
        bytes_written=moved,
        shape=(query.elements + key.elements,),
        saved=(query, key, value, *_own_tables(ctx)),
        role="heads",
    )


def rope_table(ctx: Context) -> Tensor:
    """One table of cosines or sines."""
    elements = ctx.layout.seq / ctx.layout.cp * ctx.model.rotary_width
    each = FP32_BYTES if ctx.kernels.rope_tables_fp32 else ctx.precision.stream_bytes
    return Tensor("attention.rope_tables", elements, each, "s d")


def _own_tables(ctx: Context) -> tuple[Tensor, ...]:
    if ctx.model.positions != "rotary" or ctx.kernels.rope != "eager" or not ctx.kernels.rope_tables_per_layer:
        return ()
    table = rope_table(ctx)
    return (table._replace(elements=table.elements * ctx.kernels.rope_tables),)


def _expanded(ctx: Context, read: Heads, math: bool) -> list[Tensor]:
    """Queries, keys and values as eager products keep them: fp32 where asked, grouped heads copied to all heads.

    Torch can view one shared head, or a slice of a projection, as the matrices of a batched product only while the
    micro-batch is one sequence; otherwise it copies what the product reads.
    """
    model, kernels, single = ctx.model, ctx.kernels, ctx.layout.micro_batch == 1
    query, key, value = read.query, read.key, read.value
    grouped = model.kv_heads < model.heads and model.latent_attention is None
    expand = query.elements / key.elements if grouped else 1
    values = value.elements * expand
    if grouped and kernels.sdpa and model.kv_heads == 1 and not math:
        values = where(single, value.elements, values)
        expand = expand if ctx.precision.autocast else where(single, 1, expand)  # rotated keys are cast, hence copied
    if views_values(ctx) and not grouped:
        values = where(single, read.value_projection, values)
    each = FP32_BYTES if kernels.scores_fp32 and not ctx.precision.autocast else ctx.activation
    return [
        query._replace(bytes_each=each),
        key._replace(elements=key.elements * expand, bytes_each=each),
        value._replace(elements=values),
    ]


def composed_softmax(kernels: Kernels, layout: Layout, heads: int, activation_bytes: float) -> Number:
    """1 where a layout or a dtype is not what the framework's fused softmax asks for, else 0. Those of groups read
    scores in 16 bits (``input_in_float16`` in Megatron-LM's and Transformer Engine's is_kernel_available)."""
    if not kernels.softmax_group:
        return 0
    if activation_bytes >= FP32_BYTES:
        return 1
    unmet = where(layout.micro_batch * (heads // layout.tp) % kernels.softmax_group > 0, 1, 0)
    return maximum(unmet, where(layout.seq > kernels.softmax_keys, 1, 0))


def _wider(ctx: Context, scores: Number, dropout: bool) -> tuple[Tensor, ...]:
    """What a softmax that is composed in fp32 keeps beyond a fused one: its output is wider, and cast for the product
    that reads it, nothing in fp32; dropout, which makes another tensor anyway, does not keep the cast."""
    composed = composed_softmax(ctx.kernels, ctx.layout, ctx.model.heads, ctx.activation)
    widened = ctx.kernels.softmax == "eager" or ctx.precision.autocast or ctx.activation == FP32_BYTES
    if widened or (isinstance(composed, int) and composed == 0):
        return ()
    each = FP32_BYTES - ctx.activation if dropout else FP32_BYTES
    return (Tensor(COMPOSED, scores * composed, each, "b a s s/t fp32"),)


def _softmax(ctx: Context, heads: Number) -> tuple[Tensor, list[Tensor], Tensor]:
    """The scores, what the softmax (with soft cap, sinks and dropout) keeps, and the weights that multiply values."""
    model, layout, act = ctx.model, ctx.layout, ctx.activation
    rows = layout.micro_batch * heads * layout.seq / layout.cp
    sinks = ctx.kernels.sinks if model.attention_sinks else "none"
    plain = rows * all_keys(ctx)
    scores = plain + rows * (sinks in ("shifted", "column"))
    upcast = ctx.kernels.softmax == "eager" or ctx.precision.autocast
    raw = Tensor("attention.scores", scores, FP32_BYTES if upcast else act, "b a s s/t")
    weights = Tensor(f"attention{PROBABILITIES}", scores, raw.bytes_each, "b a s s/t")
    kept = [weights]
    if ctx.kernels.scores_clamped:
        kept.append(raw._replace(name="attention.scores_read"))
    if model.attention_softcap:
        kept.append(Tensor(f"attention{SOFTCAP}", scores, act, "b a s s/t"))
    if sinks == "shifted":
        kept.append(Tensor("attention.row_maximum", rows, INDEX_BYTES, "b a s/t index"))
    if sinks == "scale":
        kept += _sink_scale(ctx, rows, scores)
    if ctx.dropout and model.attention_dropout and not _spared(ctx):
        kept.append(Tensor(f"attention{DROPOUT_MASK}", scores, MASK_BYTES, "b a s s/t mask"))
        weights = Tensor("attention.dropped", scores, act, "b a s s/t")
    elif weights.bytes_each != act:
        weights = Tensor("attention.probabilities_cast", plain if sinks == "column" else scores, act, "b a s s/t")
    elif ctx.kernels.softmax_written:  # the quotient keeps these in the place of weights that are cast or dropped
        kept.append(raw._replace(name="attention.exponentials"))
    return raw, [*kept, *_wider(ctx, scores, weights.name == "attention.dropped")], weights


def _spared(ctx: Context) -> bool:
    """Whether weights keep what dropout would take: Falcon's, where positions are rotated."""
    return ctx.kernels.attention_dropped == "in-turn" and ctx.model.positions == "rotary"


def _sink_scale(ctx: Context, rows: Number, scores: Number) -> tuple[Tensor, ...]:
    """What composed attention keeps where a sigmoid of the scores' log-sum-exp and the sink scales its output."""
    act = ctx.activation
    wide = FP32_BYTES if ctx.precision.autocast else act  # autocast takes a log-sum-exp to fp32
    return (
        Tensor("attention.scores_read", scores, wide, "b a s s/t"),
        Tensor("attention.row_sum", rows, wide, "b a s/t"),
        *_scaled(ctx, rows, ctx.model.head_dim),
    )


def _scaled(ctx: Context, rows: Number, width: Number) -> tuple[Tensor, ...]:
    """Attention's output before a sink scales it, and the sigmoid that does, also as the product reads it."""
    act = ctx.activation
    return (
        Tensor("attention.sink_scale_cast", rows, act, "b a s/t"),
        Tensor("attention.sink_scale", rows, FP32_BYTES, "b a s/t fp32"),
        Tensor("attention.unscaled", rows * width, act, "s b a d/t"),
    )


def _products(ctx: Context, read: Heads, output: Tensor, math: bool) -> list[Operation]:
    """Three rows: scores, softmax (with dropout), weighted sum; ``math`` where torch's own choice came to that. Both
    products are with all keys, whatever a window or a packed sample then lets a query see of them."""
    query, key, value = _expanded(ctx, read, math)
    raw, kept, weights = _softmax(ctx, read.count)
    layout = ctx.layout
    shape = (
        layout.micro_batch, read.count, layout.seq / layout.cp, all_keys(ctx), read.width, read.value_width
    )  # fmt: skip
    batch, heads, queries, keys, *widths = shape
    multiplied, summed = (attention_flops(batch * heads * queries * keys, width) for width in widths)
    scores = Operation(
        "attention.scores", "attention", multiplied, 2 * multiplied, query.size_bytes + key.size_bytes, raw.size_bytes,
        shape, transient_forward=(raw,), transient_backward=(raw, query, key), recompute_class="core_attention",
        role="scores",
    )  # fmt: skip
    wider = [t._replace(bytes_each=FP32_BYTES - raw.bytes_each) for t in kept if t.name == COMPOSED]
    # torch's own kernels write weights times gradients, those of a quotient three such tensors
    steps = (raw,) * ((ctx.kernels.softmax_kernel == "steps") + 2 * ctx.kernels.softmax_written)
    narrow = raw.bytes_each > ctx.activation and not ctx.precision.autocast  # what dropout reads
    masks = [t for t in kept if t.name.endswith(DROPOUT_MASK) and narrow]
    gone = [t._replace(elements=-t.elements) for t in masks]  # when wide gradients are made, the highest point
    softmax = Operation(
        "attention.softmax", "elementwise", 0, 0, raw.size_bytes, weights.size_bytes, (raw.elements,),
        tuple(kept), transient_backward=(raw, raw, *steps, *wider, *wider, *gone),
        recompute_class="core_attention", role="softmax",
    )  # fmt: skip
    weighted = Operation(
        "attention.weighted_sum", "attention", summed, 2 * summed, weights.size_bytes + value.size_bytes,
        output.size_bytes, shape, (weights,), output, transient_backward=(weights, output, value),
        recompute_class="core_attention",
    )  # fmt: skip
    return [heads_operation(ctx, query, key, value, read.key.elements), scores, softmax, weighted]
