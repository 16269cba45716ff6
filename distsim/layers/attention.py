"""Self-attention with full, grouped or single key-value heads: projections, rotary positions, core attention."""

from __future__ import annotations

from distsim.arrays import Number, maximum, nothing, where
from distsim.layers.attention_kernel import casts_keys, composed, flash_kernel, keeps_view, masked, views_values
from distsim.layers.context_parallel import beside_gathered, context_exchange, merges_in_torch, outputs_apart, traded
from distsim.layers.core_attention import Heads, core_attention
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import Bias, Weights, linear
from distsim.layers.names import DROPOUT_MASK, QKV
from distsim.layers.norm import inner_norm, norm, shared
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.units import FP32_BYTES, MASK_BYTES

KEY_RAW = "attention.key_raw"


def heads_per_rank(ctx: Context) -> tuple[Number, Number]:
    """Query heads and key-value heads on one tensor-parallel rank; fewer kv heads than ranks are replicated."""
    model, tp = ctx.model, ctx.layout.tp
    return model.heads / tp, maximum(model.kv_heads / tp, 1)


def attention(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one attention block; ``source`` is the normalised input."""
    model, layout = ctx.model, ctx.layout
    tokens, width, values = layout.tokens, model.head_dim, model.value_width
    heads, kv_heads = heads_per_rank(ctx)
    even = model.kv_heads / layout.tp if ctx.kernels.keys_gathered else kv_heads
    act, widths = ctx.activation, _projected(ctx, heads, even)
    outer, made = widths[0] + sum(widths[1:]), len(widths) - 1
    operations = [_projection(ctx, widths, outer, source)]
    projected = tokens * outer * where(even < kv_heads, layout.tp, 1)
    if model.attention_gate in ("head", "apart"):
        operations.append(gate_projection(ctx, heads * (values if model.attention_gate == "apart" else 1), source))
    query = Tensor("attention.query", tokens * heads * width, act, "s b a d/t")
    key = Tensor("attention.key", tokens * kv_heads * width, act, "s b k d/t")
    value = Tensor("attention.value", tokens * kv_heads * values, act, "s b k d/t")
    operations += _query_key_norm(ctx, query, key, heads, kv_heads, projected)
    operations += _value_norm(ctx, value, tokens * kv_heads, made)
    if model.value_embedding_every:
        from distsim.layers.value_embedding import value_embedding

        operations += value_embedding(ctx, value, kv_heads)
    operations += _clipped(ctx, query, key, value)
    key, value = traded(ctx, key, kv_heads), traded(ctx, value, kv_heads)
    operations += context_exchange(ctx, query, key, value, values)
    if model.block_indexer:
        from distsim.layers.block_indexer import block_indexer

        operations += block_indexer(ctx)
    if model.disentangled:
        from distsim.layers.disentangled import distance_scores

        operations += distance_scores(ctx, key, heads)
    shared = query.elements / key.elements
    core = core_attention(ctx, Heads(query, key, value, heads, width, values, projected, shared))
    operations += beside_gathered(ctx, core, key, value)
    if model.head_output_norm:
        raw = Tensor("attention.output_raw", tokens * heads * values, act, "s b a d/t")
        operations.append(norm(ctx, "attention.output_norm", tokens * heads, values, raw, per_head=True, affine=False))
    if model.attention_gate:
        operations.append(output_gate(ctx, tokens * heads * values, heads))
    operations += output_projection(ctx, heads * values)
    return operations


def _projected(ctx: Context, heads: Number, kv_heads: Number) -> tuple[Number, ...]:
    """Columns of the projections of queries, with their gates, of keys and of values, as far as a layer has them."""
    model = ctx.model
    asked = heads * (model.head_dim + (model.value_width if model.attention_gate is True else 0))
    return asked, *(kv_heads * model.head_dim, kv_heads * model.value_width)[: model.key_value_projections(ctx.layer)]


def _projection(ctx: Context, widths: tuple[Number, ...], outer: Number, source: Tensor) -> Operation:
    """The product that makes queries, keys and values, of as many matrices as the kernels have for it."""
    model, parts = ctx.model, (widths[0], *widths[2:])
    matrices = min(ctx.kernels.qkv_matrices, len(widths))
    return linear(
        ctx, QKV, ctx.layout.tokens, model.hidden, outer, source,
        bias=model.qkv_bias and Bias(parts=() if model.key_bias else parts), weights=Weights(matrices, widths),
        cast_input=True, collectives=(*column_collectives(ctx, matrices), *_all_heads(ctx, outer)),
    )  # fmt: skip


def _all_heads(ctx: Context, outer: Number) -> tuple[Collective, ...]:
    """What all ranks make of queries, keys and values, gathered where a rank makes part of a head of keys."""
    if not ctx.kernels.keys_gathered:
        return ()
    size = ctx.layout.tokens * outer * ctx.layout.tp * ctx.activation * (ctx.layout.tp > ctx.model.kv_heads)
    return (Collective("all_gather", "tp", size, "forward"), Collective("reduce_scatter", "tp", size, "backward"))


def gate_projection(ctx: Context, outer: Number, source: Tensor) -> Operation:
    """The product that a gate of attention's output is made of."""
    tokens, hidden = ctx.layout.tokens, ctx.model.hidden
    return linear(ctx, "attention.gate_projection", tokens, hidden, outer, source, cast_input=True)


def output_gate(ctx: Context, elements: Number, heads: Number, each: Number | None = None) -> Operation:
    """The sigmoid or softplus that attention's output is multiplied by, for each element or each head, in the
    activations' width or ``each`` bytes; both are kept, beside their product. A softplus keeps what it reads too."""
    scales = ctx.layout.tokens * heads if ctx.model.attention_gate == "head" else elements
    gate = Tensor("attention.gate", scales, ctx.activation if each is None else each, "s b a d/t")
    outputs = [one._replace(bytes_each=ctx.activation) for one in _output(ctx, elements)]
    size = sum(one.size_bytes for one in outputs)
    raw = (gate._replace(name="attention.gate_raw", bytes_each=FP32_BYTES),) * (ctx.model.gate_function == "softplus")
    wide = sum(2 * tensor.size_bytes for tensor in raw)  # what is read and what comes of it
    return Operation(
        "attention.gate", "elementwise", bytes_read=size + gate.size_bytes + wide,
        bytes_written=size + wide, shape=(elements,), saved=(*raw, gate, *outputs),
        transient_backward=(gate._replace(name="attention.gate_gradient"),),
    )  # fmt: skip


def _output(ctx: Context, elements: Number) -> tuple[Tensor, ...]:
    """Attention's output as what follows reads it: the kernel's own tensor, or a copy in another layout or of other
    heads, before the kernel's own for layouts that need none."""
    kept = Tensor("attention.output", elements, ctx.precision.kept_input_bytes, "s b a d/t")
    if ctx.model.head_output_norm:
        return (kept._replace(name="attention.output_normed"),)
    if composed(ctx):
        return (kept,)
    apart, copied = outputs_apart(ctx), merges_in_torch(ctx) if flash_kernel(ctx) else 0
    if ctx.kernels.attention_output_copy and flash_kernel(ctx):
        copied = 1
    there = maximum(copied * (1 - masked(ctx)), apart)
    if nothing(there):
        return (kept,)
    copy = kept._replace(name="attention.output_copy", elements=elements * there)
    return (copy,) if nothing(1 - there) else (copy, kept._replace(elements=elements * (1 - there)))


def output_projection(ctx: Context, inner: Number) -> list[Operation]:
    """The projection back to the hidden width, with the residual's dropout."""
    model, layout = ctx.model, ctx.layout
    kept, *uncopied = _output(ctx, layout.tokens * inner)
    if model.attention_gate:
        kept = kept._replace(name="attention.gated", elements=layout.tokens * inner)
    before, kept = inner_norm(ctx, kept, layout.tokens, inner)
    before = [_beside_copy(row, uncopied) for row in before]
    projection = linear(
        ctx,
        "attention.projection",
        layout.tokens,
        inner,
        model.hidden,
        kept,
        bias=model.attention_output_bias and Bias(whole=True),
        collectives=row_collectives(ctx),
    )
    return [*before, *joined(ctx, "attention.residual", _beside_copy(projection, uncopied))]


def _beside_copy(row: Operation, uncopied: list[Tensor]) -> Operation:
    """A row that keeps the copy of attention's output, with what it keeps in layouts that make none."""
    copies = [one for one in row.saved if one.name == "attention.output_copy"]
    own = tuple(one._replace(bytes_each=copy.bytes_each) for copy in copies for one in uncopied)
    return row._replace(saved=(*row.saved, *own)) if own else row


def joined(ctx: Context, name: str, projection: Operation) -> list[Operation]:
    """A product and the addition of its output to the residual stream.

    An addition hands its gradient on to both sides as it is, so that of the output is the stream's own tensor where
    nothing stands between: no dropout, norm or cast, and no gathering of what sequence parallel ranks hold.
    """
    model, layout = ctx.model, ctx.layout
    between = _drops(ctx, name) or model.norms_per_layer == 4 or model.streams is not None
    if not between and model.residual_streams == 1 and ctx.stream_bytes == ctx.activation:
        output, *others = projection.transient_backward
        own = output._replace(elements=where(layout.sequence_shard > 1, output.elements, 0))
        projection = projection._replace(transient_backward=(own, *others))
    return [projection, *residual(ctx, name)]


def _drops(ctx: Context, name: str) -> bool:
    """Whether dropout comes before this addition."""
    model, here = ctx.model, ctx.kernels.mlp_dropped
    rate = model.hidden_dropout
    if name == "attention.residual":
        here = bool(ctx.kernels.attention_dropped)
        if ctx.kernels.attention_dropped == "in-turn":
            here, rate = not model.parallel_blocks, model.attention_dropout
    return bool(here and ctx.dropout and rate)


def residual(ctx: Context, name: str) -> list[Operation]:
    """Dropout (where the model has it) and addition to the residual stream."""
    elements = ctx.sharded_tokens * ctx.model.hidden
    saved: tuple[Tensor, ...] = ()
    if _drops(ctx, name):
        saved = (Tensor(f"{name}{DROPOUT_MASK}", elements, MASK_BYTES, "s b h mask"),)
    if name == "attention.residual":
        saved += framework_copies(ctx)
    act = ctx.precision.stream_bytes
    return [
        Operation(
            name,
            "elementwise",
            bytes_read=2 * elements * act,
            bytes_written=elements * act,
            shape=(elements,),
            saved=saved,
            role="residual",
        )
    ]


def framework_copies(ctx: Context) -> tuple[Tensor, ...]:
    """Tensors of hidden width that a framework's code keeps per layer beyond what the mathematics needs."""
    copies = ctx.kernels.hidden_copies
    if not copies:
        return ()
    return (Tensor("layer.copies", ctx.sharded_tokens * ctx.model.hidden * copies, ctx.activation, "s b h/t"),)


def _query_key_norm(
    ctx: Context, query: Tensor, key: Tensor, heads: Number, kv_heads: Number, projected: Number
) -> list[Operation]:
    """Norms on queries and keys: of tensors of their own, or, where values are a view into a projection's output of
    ``projected`` elements, of two more views, which are counted with the values' where core attention keeps that."""
    model, tokens = ctx.model, ctx.layout.tokens
    if model.qk_norm == "none":
        return []
    own = model.qk_norm in ("each", "full")  # weights of every head
    per_head = not own
    rows = (tokens * heads, tokens * kv_heads) if per_head else (tokens, tokens)
    width = (model.head_dim,) * 2 if per_head else (heads * model.head_dim, kv_heads * model.head_dim)
    before: tuple[Tensor, ...] = (query._replace(name="attention.query_raw"), key._replace(name=KEY_RAW))
    if "rotated-first" in ctx.kernels.order and casts_keys(ctx):
        before = tuple(tensor._replace(bytes_each=FP32_BYTES) for tensor in before)
    if views_values(ctx):
        apart = projected * (1 - keeps_view(ctx))
        before = (query._replace(name="attention.projected", elements=apart),) * 2
    if model.borrows_keys(ctx.layer):
        before = before[:1]
    norms = [
        norm(
            ctx,
            f"attention.{which}_norm",
            rows[index],
            width[index],
            before[index],
            per_head=True,
            affine=model.qk_norm != "unit",
            groups=(heads, kv_heads)[index] if model.qk_norm == "each" else 1,
            role="head norm",
        )
        for index, which in enumerate(("query", "key")[: len(before)])
    ]
    return [shared(one) for one in norms] if own else norms


def _value_norm(ctx: Context, value: Tensor, rows: Number, made: int) -> list[Operation]:
    """The norm on values; where one projection makes keys too, it reads what the keys' norm reads."""
    if not ctx.model.value_norm or not made:
        return []
    raw = value._replace(name=KEY_RAW if made == 1 else "attention.value_raw")
    return [norm(ctx, "attention.value_norm", rows, ctx.model.head_dim, raw, per_head=True, affine=False)]


def _clipped(ctx: Context, *made: Tensor) -> list[Operation]:
    """Clipping of queries, keys and values, which keeps them as they were."""
    if not ctx.model.clips_projections:
        return []
    size, elements = sum(tensor.size_bytes for tensor in made), sum(tensor.elements for tensor in made)
    return [
        Operation(
            "attention.clip", "elementwise", bytes_read=size, bytes_written=size, shape=(elements,),
            saved=tuple(tensor._replace(name=f"{tensor.name}_unclipped") for tensor in made),
        )
    ]  # fmt: skip


def sink_parameters(ctx: Context) -> tuple[Parameter, ...]:
    """One learned sink logit per head (GPT-OSS)."""
    heads, _ = heads_per_rank(ctx)
    return (Parameter("attention.sinks", heads, "vector"),) if ctx.model.attention_sinks else ()
