"""What chooses blocks of keys (MiniMax-M3): queries of a few heads, one head of keys, a norm on each, and scores of
every earlier token, of which the best in a block counts; or scores of the mean of a block's keys, where all heads share
one choice (Qwen4-Exp). It hands back positions, so the loss's gradients end before it."""

from __future__ import annotations

from distsim.arrays import minimum
from distsim.formulas.attention import attention_flops
from distsim.layers.indexer import fixed
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm
from distsim.units import FP32_BYTES, INDEX_BYTES


def block_indexer(ctx: Context) -> list[Operation]:
    """Operations of one indexer, held whole by every rank; none where the layer attends to all keys."""
    index, tokens, act, layout = ctx.model.block_indexer, ctx.layout.tokens, ctx.activation, ctx.layout
    assert index is not None
    if not index.chooses(ctx.layer):
        return []
    hidden, heads, width, seen = ctx.model.hidden, index.heads, index.dim, layout.together
    samples, rows = layout.micro_batch * layout.seq / seen, seen / layout.cp
    joined = index.block if index.pooled else 1  # tokens that a score is of
    keyed = seen / joined
    scores = samples * rows * keyed * heads / (2 if index.pooled else 1)  # of blocks that come before alone
    flops = attention_flops(scores, width)
    queries = Tensor("attention.index.query_raw", tokens * heads * width, act, "s b i d")
    keys = Tensor("attention.index.key_raw", tokens * width, act, "s b d")
    chosen = tokens * (1 if index.pooled else heads) * minimum(index.blocks, seen / index.block)
    products = {"query_key": heads + 1} if index.pooled else {"query": heads, "key": 1}
    rows_of = [
        *(linear(ctx, f"attention.index.{what}", tokens, hidden, count * width, None, sharded=False)
          for what, count in products.items()),
        norm(ctx, "attention.index.query_norm", tokens * heads, width, queries, per_head=True, role="index norm"),
        norm(ctx, "attention.index.key_norm", tokens / joined, width, keys, per_head=True, role="index norm"),
        Operation(
            "attention.index.scores", "attention", flops, 2 * flops,
            queries.size_bytes + keys.size_bytes, scores / index.block * joined * FP32_BYTES,
            (samples, heads, rows, scores / (samples * heads * rows), width, width),
            saved=(Tensor("attention.index.chosen", chosen, INDEX_BYTES, "s b i k"),), role="scores",
        ),
    ]  # fmt: skip
    if ctx.kernels.indexer == "trained":
        return rows_of
    return [fixed(one) for one in rows_of]
