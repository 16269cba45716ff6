"""Self-attention with full, grouped or single key-value heads: projections, rotary positions, core attention."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import column_collectives, row_collectives

LSE_BYTES = 4  # flash attention keeps one fp32 log-sum-exp per head and query token
MASK_BYTES = 1  # a dropout mask is one byte per element


def heads_per_rank(ctx: Context) -> tuple[Number, Number]:
    """Query heads and key-value heads on one tensor-parallel rank; fewer kv heads than ranks are replicated."""
    model, tp = ctx.model, ctx.layout.tp
    return model.heads / tp, maximum(model.kv_heads / tp, 1)


def attention(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one attention block; ``source`` is the normalised input."""
    model, layout = ctx.model, ctx.layout
    tokens, width = layout.tokens, model.head_dim
    heads, kv_heads = heads_per_rank(ctx)
    act = ctx.activation
    outer = (heads + 2 * kv_heads) * width
    qkv = linear(
        ctx,
        "attention.qkv",
        tokens,
        model.hidden,
        outer,
        source,
        bias=model.qkv_bias,
        matrices=ctx.kernels.qkv_matrices,
        collectives=column_collectives(ctx),
    )
    operations = [qkv]
    query = Tensor("attention.query", tokens * heads * width, act, "s b a d/t")
    key = Tensor("attention.key", tokens * kv_heads * width, act, "s b k d/t")
    value = Tensor("attention.value", tokens * kv_heads * width, act, "s b k d/t")
    operations += _query_key_norm(ctx, query, key, heads, kv_heads)
    operations += core_attention(ctx, query, key, value, heads, width, width)
    operations += output_projection(ctx, heads * width)
    return operations


def output_projection(ctx: Context, inner: Number) -> list[Operation]:
    """The projection back to the hidden width, with the residual's dropout."""
    model, layout = ctx.model, ctx.layout
    kept = Tensor("attention.output", layout.tokens * inner, ctx.precision.kept_input_bytes, "s b a d/t")
    if ctx.kernels.attention_output_copy and layout.attention == "flash":
        kept = kept._replace(name="attention.output_copy")
    projection = linear(
        ctx,
        "attention.projection",
        layout.tokens,
        inner,
        model.hidden,
        kept,
        bias=model.attention_output_bias,
        bias_whole=True,
        collectives=row_collectives(ctx),
    )
    return [projection, *residual(ctx, "attention.residual")]


def residual(ctx: Context, name: str) -> list[Operation]:
    """Dropout (where the model has it) and addition to the residual stream."""
    elements = ctx.sharded_tokens * ctx.model.hidden
    saved: tuple[Tensor, ...] = ()
    if ctx.dropout and (ctx.model.hidden_dropout or ctx.kernels.dropout_always):
        saved = (Tensor(f"{name}.dropout_mask", elements, MASK_BYTES, "s b h mask"),)
    act = ctx.precision.stream_bytes
    return [
        Operation(
            name,
            "elementwise",
            bytes_read=2 * elements * act,
            bytes_written=elements * act,
            shape=(elements,),
            saved=saved,
        )
    ]


def _query_key_norm(ctx: Context, query: Tensor, key: Tensor, heads: Number, kv_heads: Number) -> list[Operation]:
    model, tokens = ctx.model, ctx.layout.tokens
    if model.qk_norm == "none":
        return []
    rows = (tokens * heads, tokens * kv_heads) if model.qk_norm == "head" else (tokens, tokens)
    width = (model.head_dim,) * 2 if model.qk_norm == "head" else (heads * model.head_dim, kv_heads * model.head_dim)
    before = (query._replace(name="attention.query_raw"), key._replace(name="attention.key_raw"))
    return [
        norm(ctx, f"attention.{which}_norm", rows[index], width[index], before[index], per_head=True)
        for index, which in enumerate(("query", "key"))
    ]


def key_tokens(ctx: Context) -> Number:
    """Keys that a query can see at most: the sequence, or the sliding window."""
    if ctx.model.is_windowed(ctx.layer):
        return minimum(ctx.layout.seq, ctx.model.window)
    return ctx.layout.seq


def core_attention(
    ctx: Context, query: Tensor, key: Tensor, value: Tensor, heads: Number, width: Number, value_width: Number
) -> list[Operation]:
    """Scores, softmax and weighted sum: one flash kernel, or eager products with the score matrix in memory."""
    layout = ctx.layout
    batch, queries, keys = layout.micro_batch, layout.seq / layout.cp, key_tokens(ctx)
    flops = 2 * batch * heads * queries * keys * (width + value_width)
    output = Tensor("attention.output", layout.tokens * heads * value_width, ctx.activation, "s b a d/t")
    if layout.attention == "flash":
        lse = Tensor("attention.lse", layout.tokens * heads, LSE_BYTES, "s b a/t")
        saved = (output, lse) if ctx.kernels.attention_lse else (output,)
        reads = query.size_bytes + key.size_bytes + value.size_bytes
        return [
            heads_operation(ctx, query, key, value),
            Operation(
                "attention.core",
                "attention",
                flops,
                2.5 * flops,
                reads,
                output.size_bytes,
                (batch, heads, queries, keys, width, value_width),
                saved,
                output,
                recompute_class="core_attention",
            ),
        ]
    return _eager(ctx, query, key, value, output, batch * heads * queries * layout.seq, heads, flops, value_width)


def heads_operation(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Operation:
    """Splitting into heads and rotating; keeps queries, keys and values, also under selective recompute."""
    rotates = ctx.model.positions == "rotary"
    moved = (query.size_bytes + key.size_bytes) * rotates
    return Operation(
        "attention.heads",
        "elementwise",
        bytes_read=moved,
        bytes_written=moved,
        shape=(query.elements + key.elements,),
        saved=(query, key, value),
    )


def _eager(
    ctx: Context,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    scores: Number,
    heads: Number,
    flops: Number,
    value_width: Number,
) -> list[Operation]:
    """Three rows: scores, softmax (with dropout), weighted sum; eager code expands grouped keys and values."""
    act, kernels, tokens = ctx.activation, ctx.kernels, ctx.layout.tokens
    dropout = ctx.dropout and bool(ctx.model.attention_dropout)
    expand = query.elements / key.elements if kernels.expand_kv else 1
    keys = key._replace(elements=key.elements * expand)
    values = value._replace(elements=value.elements * expand)
    upcast = kernels.softmax == "eager"
    softmax = [Tensor("attention.probabilities", scores, 4 if upcast else act, "b a s s/t")]
    weights = softmax[0]
    if dropout:
        softmax.append(Tensor("attention.dropout_mask", scores, MASK_BYTES, "b a s s/t mask"))
        weights = Tensor("attention.dropped", scores, act, "b a s s/t")
    elif upcast and act != 4:
        weights = Tensor("attention.probabilities_cast", scores, act, "b a s s/t")
    shape = (
        ctx.layout.micro_batch,
        heads,
        ctx.layout.seq / ctx.layout.cp,
        ctx.layout.seq,
        ctx.model.head_dim,
        value_width,
    )
    raw = Tensor("attention.scores", scores, 4 if upcast else act, "b a s s/t")
    return [
        heads_operation(ctx, query, keys, values),
        Operation(
            "attention.scores",
            "attention",
            flops / 2,
            flops,
            query.size_bytes + keys.size_bytes,
            raw.size_bytes,
            shape,
            transient_forward=(raw,),
            recompute_class="core_attention",
        ),
        Operation(
            "attention.softmax",
            "elementwise",
            0,
            0,
            raw.size_bytes,
            weights.size_bytes,
            (scores,),
            tuple(softmax),
            transient_backward=(raw,),
            recompute_class="core_attention",
        ),
        Operation(
            "attention.weighted_sum",
            "attention",
            flops / 2,
            flops,
            weights.size_bytes + values.size_bytes,
            tokens * heads * value_width * act,
            shape,
            (weights,),
            output,
            recompute_class="core_attention",
        ),
    ]


def sink_parameters(ctx: Context) -> tuple[Parameter, ...]:
    """One learned sink logit per head (GPT-OSS)."""
    heads, _ = heads_per_rank(ctx)
    return (Parameter("attention.sinks", heads, "vector"),) if ctx.model.attention_sinks else ()
