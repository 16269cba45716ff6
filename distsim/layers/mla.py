"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

from __future__ import annotations

from distsim.layers.attention import output_gate, output_projection
from distsim.layers.context_parallel import context_exchange
from distsim.layers.core_attention import core_attention
from distsim.layers.indexer import indexer
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import column_collectives


def latent_attention(ctx: Context, source: Tensor) -> list[Operation]:
    """Low-rank query and key-value projections, each with its norm, then attention over all heads."""
    model, layout = ctx.model, ctx.layout
    mla = model.latent_attention
    assert mla is not None
    tokens, act = layout.tokens, ctx.activation
    heads = model.heads / layout.tp
    width = mla.nope_dim + mla.rope_dim
    shard = layout.sequence_shard
    kept = ctx.precision.kept_input_bytes
    operations: list[Operation] = []
    if mla.q_rank:
        down = Tensor("attention.query_latent_raw", tokens / shard * mla.q_rank, act, "s b q")
        latent = Tensor("attention.query_latent", tokens / shard * mla.q_rank, kept, "s b q")
        operations += [
            linear(
                ctx,
                "attention.query_down",
                tokens / shard,
                model.hidden,
                mla.q_rank,
                source,
                sharded=False,
                bias=model.qkv_bias,
                cast_input=True,
            ),
            norm(ctx, "attention.query_latent_norm", tokens / shard, mla.q_rank, down, per_head=True),
            linear(ctx, "attention.query_up", tokens, mla.q_rank, heads * width, latent),
            *(indexer(ctx, latent) if mla.index_heads else []),
        ]
    else:
        operations.append(linear(ctx, "attention.query", tokens, model.hidden, heads * width, source, cast_input=True))
    down = Tensor("attention.kv_latent_raw", tokens / shard * mla.kv_rank, act, "s b c")
    latent = Tensor("attention.kv_latent", tokens / shard * mla.kv_rank, kept, "s b c")
    operations += [
        linear(
            ctx,
            "attention.kv_down",
            tokens / shard,
            model.hidden,
            mla.kv_rank + mla.rope_dim,
            source,
            sharded=False,
            bias=model.qkv_bias,
            cast_input=True,
            collectives=column_collectives(ctx),
        ),
        norm(ctx, "attention.kv_latent_norm", tokens / shard, mla.kv_rank, down, per_head=True),
        linear(ctx, "attention.kv_up", tokens, mla.kv_rank, heads * (mla.nope_dim + mla.value_dim), latent),
    ]
    query = Tensor("attention.query", tokens * heads * width, act, "s b a d/t")
    key = Tensor("attention.key", tokens * heads * width, act, "s b a d/t")
    value = Tensor("attention.value", tokens * heads * mla.value_dim, act, "s b a v/t")
    projection = tokens * heads * (mla.nope_dim + mla.value_dim)
    operations += context_exchange(ctx, query, key, value, mla.value_dim)
    operations += core_attention(ctx, query, key, value, heads, width, mla.value_dim, value_projection=projection)
    if model.attention_gate:
        operations.append(linear(ctx, "attention.gate_projection", tokens, model.hidden, heads * mla.value_dim, None))
        operations.append(output_gate(ctx, tokens * heads * mla.value_dim))
    return operations + output_projection(ctx, heads * mla.value_dim)
