"""Token, position and segment embeddings."""

from __future__ import annotations

from dataclasses import replace

from distsim.layers.core_attention import MASK_BYTES, rope_table
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm
from distsim.layers.tensor_parallel import boundary_bytes

INDEX_BYTES = 8  # token ids are int64


def embedding(ctx: Context) -> list[Operation]:
    """Looking tokens up (vocabulary-parallel under tp), positions, segments, dropout."""
    model, layout = ctx.model, ctx.layout
    width = model.embedding_width or model.hidden
    rows = ctx.vocab_padded / layout.vocab_ranks
    size, sp = boundary_bytes(ctx), layout.sequence_parallel
    elements = ctx.sharded_tokens * model.hidden
    saved = [Tensor("embedding.tokens", layout.tokens, INDEX_BYTES, "s b")]
    parameters = [Parameter("embedding.weight", rows * width, "embedding", rows, width)]
    if model.positions == "learned":
        saved.append(Tensor("embedding.positions", layout.seq / layout.cp, INDEX_BYTES, "s"))
        parameters.append(_table("embedding.position_weight", model.position_rows, model.hidden))
    if model.positions == "relative":
        buckets = model.position_rows * model.heads / layout.tp
        stacks = 2 if model.encoder_layers else 1
        parameters.append(Parameter("embedding.relative_bias", stacks * buckets, "embedding", model.position_rows))
    if model.token_types:
        parameters.append(_table("embedding.type_weight", model.token_types, model.hidden))
    if ctx.dropout and (model.embedding_dropout or ctx.kernels.dropout_always):
        saved.append(Tensor("embedding.dropout_mask", elements, MASK_BYTES, "s b h mask"))
    if model.positions == "rotary" and ctx.kernels.rope == "eager" and not ctx.kernels.rope_tables_per_layer:
        table = rope_table(ctx)
        saved.append(table._replace(elements=table.elements * ctx.kernels.rope_tables))
    stream = ctx.precision.stream_bytes
    lookup = Operation(
        "embedding",
        "embedding",
        bytes_read=layout.tokens * width * stream,
        bytes_written=elements * stream,
        shape=(layout.tokens, width),
        saved=tuple(saved),
        transient_backward=(Tensor("embedding.output_gradient", elements, stream, "s b h"),),
        parameters=tuple(parameters),
        collectives=(
            Collective("reduce_scatter", "tp", size * sp, "forward"),
            Collective("all_gather", "tp", size * sp, "backward"),
            Collective("all_reduce", "tp", size * (1 - sp), "forward"),
        ),
    )
    operations = [lookup, *_second(ctx)]
    if width != model.hidden:
        source = Tensor("embedding.narrow", layout.tokens * width, ctx.precision.kept_input_bytes, "s b w")
        operations.append(
            linear(ctx, "embedding.project_in", layout.tokens, width, model.hidden, source, sharded=False)
        )
    if model.embedding_norm:
        source = Tensor("embedding.output", elements, stream, "s b h")
        operations.append(norm(ctx, "embedding.norm", ctx.sharded_tokens, model.hidden, source))
    return operations


def _second(ctx: Context) -> list[Operation]:
    """The lookup of a decoder behind an encoder, in the same table."""
    if not ctx.model.encoder_layers:
        return []
    ctx = replace(ctx, layer=ctx.model.layers - 1).side
    elements, stream = ctx.sharded_tokens * ctx.model.hidden, ctx.precision.stream_bytes
    saved = [Tensor("embedding.decoder_tokens", ctx.layout.tokens, INDEX_BYTES, "s b")]
    if ctx.dropout and ctx.model.embedding_dropout:
        saved.append(Tensor("embedding.decoder_dropout_mask", elements, MASK_BYTES, "s b h mask"))
    return [
        Operation(
            "embedding.decoder", "embedding", bytes_read=elements * stream, bytes_written=elements * stream,
            shape=(ctx.layout.tokens, ctx.model.hidden), saved=tuple(saved),
        )
    ]  # fmt: skip


def _table(name: str, rows: int, width: int) -> Parameter:
    """A small table that every tensor-parallel rank holds."""
    return Parameter(name, rows * width, "embedding", rows, width, tensor_parallel=False)
