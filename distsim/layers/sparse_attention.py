"""Latent attention to chosen keys by kernels that read no others (FlashMLA, deepseek-ai/FlashMLA README).

Such kernels take one head of keys and values for all heads of queries, so attention is done on the narrow layer
itself: each head's queries are multiplied into it before (absorbed), and its output out of it behind, with the matrix
that would else make keys and values. A pair of query and key takes products over rank plus rotated width and over rank
(576 and 512 where dense attention has 192 and 128): it pays only where far fewer keys are chosen than there are.
"""

from __future__ import annotations

from distsim.arrays import Number, ceil_div
from distsim.formulas.attention import attention_flops, chosen_keys, gathered_bytes
from distsim.layers.core_attention import FLASH_BACKWARD, LSE_BYTES, heads_operation
from distsim.layers.indexer import target_scores
from distsim.layers.ledger import Context, Operation, Tensor

HEAD_TILE = 16
"""Heads of a query that a kernel multiplies at least: fewer are padded (tile-ai/tilelang examples/deepseek_v32,
sparse_mla_fwd.py; NVIDIA/cudnn-frontend has backward for 16, 32, 64 and more; FlashMLA alone takes 64 or 128)."""


def padded_heads(ctx: Context) -> Number:
    """Heads that a rank's kernel multiplies for each of its tokens; ranks that trade heads for tokens have a part of
    them for all tokens, and pad that."""
    layout = ctx.layout
    parts = layout.cp if layout.cp_mode == "all_to_all" else 1
    tile = HEAD_TILE * parts
    return ceil_div(ctx.model.heads / layout.tp, tile) * tile


def absorbed(ctx: Context, row: Operation, query: Tensor) -> tuple[Operation, Tensor, Tensor]:
    """The product that else makes keys and values, as many operations on either side of attention; queries and keys of
    the narrow layer."""
    mla, tokens, act = ctx.model.latent_attention, ctx.layout.tokens, ctx.activation
    assert mla is not None
    heads = ctx.model.heads / ctx.layout.tp
    wide = mla.kv_rank + mla.rope_dim
    wider = query._replace(name="attention.query_absorbed", elements=tokens * heads * wide)
    keys = Tensor("attention.key", tokens * wide, act, "s b c")
    each = (tokens, mla.kv_rank, mla.nope_dim + mla.value_dim, heads)
    return row._replace(saved=(), output=None, shape=each), wider, keys


def sparse_core(ctx: Context, query: Tensor, wider: Tensor, key: Tensor) -> list[Operation]:
    """Attention of each query to its chosen keys, and what the indexer learns to agree with: the same scores again."""
    mla, layout = ctx.model.latent_attention, ctx.layout
    assert mla is not None
    heads, tokens = ctx.model.heads / layout.tp, layout.tokens
    padded = padded_heads(ctx)
    seen = chosen_keys(layout.together, mla.index_keys)
    wide = mla.kv_rank + mla.rope_dim
    pairs: Number = tokens * padded * seen
    output = Tensor("attention.output_latent", tokens * heads * mla.kv_rank, ctx.activation, "s b a c/t")
    final = Tensor("attention.output", tokens * heads * mla.value_dim, ctx.activation, "s b a d/t")
    nothing = key._replace(name="attention.value", elements=0)
    flops = attention_flops(pairs, wide, mla.kv_rank)
    shape = (tokens, 1, padded, seen, wide, mla.kv_rank)
    moved = wider.size_bytes + key.size_bytes + gathered_bytes(tokens, seen, wide * ctx.activation)
    rows = [
        heads_operation(ctx, query, key, nothing, key.elements),
        Operation(
            "attention.core", "attention", flops, FLASH_BACKWARD * flops, moved, output.size_bytes, shape,
            (wider, output, final, Tensor("attention.lse", tokens * heads, LSE_BYTES, "s b a/t")), final,
            transient_backward=(output, wider, key), recompute_class="core_attention", causal=False, role="core",
        ),
    ]  # fmt: skip
    if mla.chooses(ctx.layer):
        rows.append(target_scores(attention_flops(pairs, wide), moved, shape))
    return rows
