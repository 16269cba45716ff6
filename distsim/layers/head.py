"""The final norm, the output layer and the loss."""

from __future__ import annotations

from distsim.arrays import minimum, where
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.mtp import SHARED_EMBEDDING, predictions
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import column_collectives
from distsim.units import FP32_BYTES

INDEX_BYTES = 8


def head(ctx: Context) -> list[Operation]:
    """Operations after the last layer, those of multi-token prediction last. A tied output layer lists its matrix here
    too, marked by its name."""
    rows = _head(ctx)
    return rows + predictions(ctx, rows)


def _head(ctx: Context) -> list[Operation]:
    model, layout = ctx.model, ctx.layout
    stream = Tensor("head.input", ctx.sharded_tokens * model.hidden, ctx.precision.stream_bytes, "s b h")
    operations: list[Operation] = []
    if model.final_norm:
        operations.append(norm(ctx, "final_norm", ctx.sharded_tokens, model.hidden, stream))
    width = model.embedding_width or model.hidden
    if width != model.hidden:
        source = Tensor("head.wide", layout.tokens * model.hidden, ctx.activation, "s b h")
        operations.append(linear(ctx, "head.project_out", layout.tokens, model.hidden, width, source, sharded=False))
    normalised = Tensor("head.normalised", ctx.sharded_tokens * width, ctx.activation, "s b h")
    output = linear(
        ctx,
        "head",
        layout.tokens,
        width,
        ctx.vocab_padded / layout.tp,
        normalised,
        bias=model.head_bias,
        cast_input=True,
        collectives=column_collectives(ctx, narrow=False),
    )
    return [*operations, output, _loss(ctx)]


def _loss(ctx: Context) -> Operation:
    """Cross entropy. The fp32 logits (or their log-softmax) are the largest single tensor of many jobs."""
    layout, kernels = ctx.layout, ctx.kernels
    chunk = kernels.loss_chunk_tokens
    tokens = minimum(layout.tokens, chunk) if chunk else layout.tokens
    shards = 1 + (layout.tp - 1) * layout.loss_parallel
    logits = tokens * ctx.vocab_padded / shards
    act = ctx.activation
    whole = layout.tokens * ctx.vocab_padded / shards if kernels.loss_keeps_chunks else logits
    kept = Tensor("loss.log_softmax", whole, FP32_BYTES, "s b v/t fp32")
    if kernels.loss != "eager":
        kept = Tensor("loss.logits_kept", whole, kernels.loss_kept_bytes, "s b v/t")
    saved = [kept]
    if kernels.loss == "eager":
        saved += [Tensor("loss.targets", layout.tokens, INDEX_BYTES, "s b"), Tensor("loss.weight", 1, FP32_BYTES, "1")]
    if ctx.model.attention_softcap:  # Gemma 2 caps the logits as it caps the scores
        saved.append(Tensor("loss.softcap", logits, act, "s b v/t"))
    half = Tensor("loss.logits", logits, act, "s b v/t")
    if kernels.loss != "eager" and kernels.loss_transit_bytes is not None:
        half = half._replace(bytes_each=kernels.loss_transit_bytes)
    upcast = Tensor("loss.upcast", logits, FP32_BYTES, "s b v/t fp32")
    eager = kernels.loss == "eager"
    # eager: bf16 logits and their fp32 upcast are alive when the log-softmax is made; in backward the fp32
    # gradients of the log-softmax and of its input
    forward = (half, upcast) if eager and act != FP32_BYTES else (half,)
    sharded = where(layout.tp > 1, layout.loss_parallel, 0)
    gathered = layout.tokens * ctx.vocab_padded * act * where(layout.tp > 1, 1 - layout.loss_parallel, 0)
    return Operation(
        "loss",
        "loss",
        bytes_read=logits * act,
        bytes_written=logits * FP32_BYTES,
        shape=(layout.tokens, ctx.vocab_padded / shards),
        saved=tuple(saved),
        transient_forward=forward,
        transient_backward=(upcast, upcast) if eager else (half,),
        collectives=(
            Collective(
                "all_reduce", "tp", layout.tokens * FP32_BYTES * sharded, "forward", calls=3, bytes_each=FP32_BYTES
            ),
            Collective("all_gather", "tp", gathered, "forward"),
        ),
    )


def tied_parameter(parameter: Parameter, ctx: Context) -> bool:
    """Whether this parameter is a view of the embedding: the output layer's, or that of multi-token prediction."""
    return parameter.name == SHARED_EMBEDDING or (ctx.model.tied_embeddings and parameter.name == "head.weight")
