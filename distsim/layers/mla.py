"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

Every tensor parallel rank holds the products that make the latents, and under sequence parallelism runs them on its own
tokens; what it gathers are the latents, which are narrower than the hidden state (NVIDIA/Megatron-LM core/transformer/
multi_latent_attention.py with Transformer Engine's layers). Software that keeps a layer's input gathered (torch's
DTensors) gathers the hidden state before them.
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.attention import gate_projection, output_gate, output_projection
from distsim.layers.attention_kernel import keeps_projections, reads_chosen
from distsim.layers.context_parallel import beside_gathered, context_exchange, traded
from distsim.layers.core_attention import Heads, core_attention
from distsim.layers.indexer import indexer
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm
from distsim.layers.sparse_attention import absorbed, sparse_core
from distsim.layers.tensor_parallel import column_collectives, sequence_gathers
from distsim.specs.latent import LatentAttention
from distsim.units import FP32_BYTES


def latent_attention(ctx: Context, source: Tensor) -> list[Operation]:
    """Low-rank query and key-value projections, each with its norm, then attention over all heads."""
    model, layout = ctx.model, ctx.layout
    mla = model.latent_attention
    assert mla is not None
    tokens, act = layout.tokens, ctx.activation
    heads, width = model.heads / layout.tp, mla.nope_dim + mla.rope_dim
    inner = heads * mla.value_dim
    query = Tensor("attention.query", tokens * heads * width, act, "s b a d/t")
    key = Tensor("attention.key", tokens * heads * width, act, "s b a d/t")
    value = Tensor("attention.value", tokens * inner, act, "s b a v/t")
    projection = tokens * heads * (mla.nope_dim + mla.value_dim)
    operations = [
        *_queries(ctx, mla, source, heads * width + (inner if mla.fused_gate else 0)),
        *_keys_and_values(ctx, mla, source, heads * (mla.nope_dim + mla.value_dim)),
    ]
    scaled = _scaled(ctx, query, heads) if mla.query_scale else []
    if reads_chosen(model, layout, ctx.kernels):
        operations[-1], wider, key = absorbed(ctx, operations[-1], query)
        key = traded(ctx, key, 1)  # which all heads read
        exchanged = context_exchange(ctx, wider, key, key._replace(elements=0), mla.kv_rank)
        core = beside_gathered(ctx, sparse_core(ctx, query, wider, key), key, key._replace(elements=0))
        return [*operations, *scaled, *exchanged, *core, *_gated(ctx, mla, heads, source)]
    operations += scaled
    operations += context_exchange(ctx, query, key, value, mla.value_dim)
    core = core_attention(ctx, Heads(query, key, value, heads, width, mla.value_dim, projection))
    operations += beside_gathered(ctx, core, key, value)
    return operations + _gated(ctx, mla, heads, source)


def _gated(ctx: Context, mla: LatentAttention, heads: Number, source: Tensor) -> list[Operation]:
    """A gate on attention's output, where there is one, and the projection back."""
    gate, inner = ctx.model.attention_gate, heads * mla.value_dim
    operations: list[Operation] = []
    if gate and not mla.fused_gate:
        made = gate_projection(ctx, heads if gate == "head" else inner, source)
        alone = mla.q_rank and ctx.kernels.regather_input  # else queries or latents gather its input
        operations.append(made._replace(collectives=column_collectives(ctx)) if alone else made)
    if gate:
        each = FP32_BYTES if mla.fused_gate else None
        operations.append(output_gate(ctx, ctx.layout.tokens * inner, heads, each))
    return operations + output_projection(ctx, inner)


def _queries(ctx: Context, mla: LatentAttention, source: Tensor, outer: Number) -> list[Operation]:
    """Queries by way of a narrow layer, which an indexer reads too; at once where there is none."""
    hidden, tokens = ctx.model.hidden, ctx.layout.tokens
    if not mla.q_rank:
        return [
            linear(ctx, "attention.query", tokens, hidden, outer, source, cast_input=True,
                   collectives=column_collectives(ctx) if ctx.kernels.regather_input else ()),
            *(indexer(ctx, None) if mla.chooses(ctx.layer) else []),
        ]  # fmt: skip
    raw, latent = _narrow(ctx, "query_latent", mla.q_rank, "s b q")
    own, together = tokens / ctx.layout.sequence_shard, 2 if mla.fused_gate else 1
    read = latent._replace(elements=together * latent.elements)
    return [
        linear(ctx, "attention.query_down", own, hidden, mla.q_rank, source, sharded=False, bias=ctx.model.qkv_bias,
               cast_input=True),
        norm(ctx, "attention.query_latent_norm", own, mla.q_rank, raw, per_head=True, role="latent norm"),
        linear(ctx, "attention.query_up", tokens, together * mla.q_rank, outer, read,
               collectives=_entered(ctx, together * mla.q_rank)),
        *(indexer(ctx, latent) if mla.chooses(ctx.layer) else []),
    ]  # fmt: skip


def _scaled(ctx: Context, query: Tensor, heads: Number) -> list[Operation]:
    """Queries times a number for each head and position, which has two parameters a head."""
    factor = Tensor("attention.query_scale", ctx.layout.tokens * heads, ctx.activation, "s b a/t")
    return [
        Operation(
            "attention.query_scale", "elementwise", bytes_read=query.size_bytes, bytes_written=query.size_bytes,
            shape=(query.elements,), saved=(query._replace(name="attention.query_unscaled"), factor),
            transient_backward=(query._replace(name="attention.query_gradient"),),
            parameters=tuple(Parameter(f"attention.query_scale.{one}", heads, "vector") for one in ("weight", "bias")),
        )
    ]  # fmt: skip


def _keys_and_values(ctx: Context, mla: LatentAttention, source: Tensor, outer: Number) -> list[Operation]:
    """Keys and values by way of a narrow layer, beside the rotated part of the keys that all heads share."""
    raw, latent = _narrow(ctx, "kv_latent", mla.kv_rank, "s b c")
    own = ctx.layout.tokens / ctx.layout.sequence_shard
    if keeps_projections(ctx.kernels):  # the latents, too, are a view of their projection's output
        raw = raw._replace(elements=own * (mla.kv_rank + mla.rope_dim))
    latents = ctx.kernels.regather_input
    rotated = Tensor("attention.key_rope_raw", own * mla.rope_dim, ctx.activation, "s b r")
    return [
        linear(ctx, "attention.kv_down", own, ctx.model.hidden, mla.kv_rank + mla.rope_dim, source, sharded=False,
               bias=ctx.model.qkv_bias, cast_input=True,
               collectives=sequence_gathers(ctx, mla.rope_dim) if latents else column_collectives(ctx)),
        norm(ctx, "attention.kv_latent_norm", own, mla.kv_rank, raw, per_head=True, role="latent norm"),
        *([norm(ctx, "attention.key_rope_norm", own, mla.rope_dim, rotated, per_head=True)] if mla.rope_norm else []),
        linear(ctx, "attention.kv_up", ctx.layout.tokens, mla.kv_rank, outer, latent,
               collectives=_entered(ctx, mla.kv_rank)),
    ]  # fmt: skip


def _entered(ctx: Context, width: Number) -> tuple[Collective, ...]:
    """What a product of heads needs of a latent that each rank has for its own tokens."""
    return column_collectives(ctx, width=width) if ctx.kernels.regather_input else ()


def _narrow(ctx: Context, name: str, rank: int, shape: str) -> tuple[Tensor, Tensor]:
    """A narrow layer's output, before and after its norm."""
    elements = ctx.layout.tokens / ctx.layout.sequence_shard * rank
    raw = Tensor(f"attention.{name}_raw", elements, ctx.activation, shape)
    return raw, Tensor(f"attention.{name}", elements, ctx.precision.kept_input_bytes, shape)
