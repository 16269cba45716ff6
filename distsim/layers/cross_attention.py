"""Attention of a decoder's layer to what an encoder gives (Raffel et al. 2020, T5, arXiv:1910.10683, section 2.1)."""

from __future__ import annotations

from distsim.layers.attention import heads_per_rank, joined
from distsim.layers.attention_kernel import flash_kernel, masked
from distsim.layers.core_attention import Heads, core_attention
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import Bias, Weights, linear
from distsim.layers.names import CROSS
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import column_collectives, row_collectives


def cross_attention(ctx: Context, whole: Context) -> list[Operation]:
    """Norm, queries of the layer's own tokens, keys and values of the encoder's (``whole``), core, projection."""
    model, width, act = ctx.model, ctx.model.head_dim, ctx.activation
    heads, kv_heads = heads_per_rank(ctx)
    tokens, others = ctx.layout.tokens, whole.layout.tokens
    rows = ctx.sharded_tokens * model.hidden
    query = Tensor("attention.query", tokens * heads * width, act, "s b a d/t")
    key = Tensor("attention.key", others * kv_heads * width, act, "s b k d/t")
    value = Tensor("attention.value", others * kv_heads * width, act, "s b k d/t")
    read = Heads(query, key, value, heads, width, width, value.elements, heads / kv_heads)
    core = core_attention(ctx._replace(keys=whole.layout.seq), read)
    kept = Tensor("attention.output", tokens * heads * width, ctx.precision.kept_input_bytes, "s b a d/t")
    if ctx.kernels.attention_output_copy and flash_kernel(ctx):
        kept = kept._replace(name="attention.output_copy", elements=kept.elements * (1 - masked(ctx)))
    # all layers read one tensor, which the encoder's end keeps; autocast casts it for each product
    given = (
        Tensor(f"{CROSS}.given", whole.sharded_tokens * model.hidden, act, "s b h") if ctx.precision.autocast else None
    )
    return [
        norm(ctx, f"{CROSS}.norm", ctx.sharded_tokens, model.hidden,
             Tensor(f"{CROSS}.residual_input", rows, ctx.precision.stream_bytes, "s b h")),
        linear(ctx, f"{CROSS}.query", tokens, model.hidden, heads * width,
               Tensor(f"{CROSS}.input", rows, ctx.precision.kept_input_bytes, "s b h"), bias=model.qkv_bias,
               cast_input=True, collectives=column_collectives(ctx)),
        linear(whole, f"{CROSS}.kv", others, model.hidden, 2 * kv_heads * width, given, weights=Weights(2),
               bias=model.qkv_bias and Bias(parts=() if model.key_bias else (kv_heads * width,)),
               cast_input=True, collectives=column_collectives(whole)),
        *map(_renamed, core),
        *joined(ctx, f"{CROSS}.residual", linear(
            ctx, f"{CROSS}.projection", tokens, heads * width, model.hidden, _own(kept),
            bias=model.attention_output_bias and Bias(whole=True), collectives=row_collectives(ctx))),
    ]  # fmt: skip


def _own(tensor: Tensor) -> Tensor:
    return tensor._replace(name=tensor.name.replace("attention", CROSS, 1))


def _renamed(operation: Operation) -> Operation:
    """The row under this block's name, so that a layer keeps its tensors beside those of its own attention."""
    return operation._replace(
        name=operation.name.replace("attention", CROSS, 1), saved=tuple(map(_own, operation.saved)),
        output=None if operation.output is None else _own(operation.output),
        transient_forward=tuple(map(_own, operation.transient_forward)),
        transient_backward=tuple(map(_own, operation.transient_backward)),
    )  # fmt: skip
