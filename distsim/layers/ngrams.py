"""Embeddings of n-grams in single layers (Qwen4-Exp): rows of a large table, found by hashes of a token and those
before it, make a value and a key for each residual stream; stream and key give a gate, and gated values, with a
convolution of their norms over earlier tokens, are added to all streams before the layer begins.

The table is looked up, so it takes part in no product; its gradient is as large as it is. Ranks of tensor parallelism
share it out; what stands behind it each of them holds whole. A convolution reads a few tokens of the sequence parallel
neighbour, which are not counted.
"""

from __future__ import annotations

from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.names import NGRAM_TABLE
from distsim.layers.norm import norm
from distsim.units import INDEX_BYTES

NAME = "ngrams"
SMALL = 5
"""Numbers per stream and token that are kept around a gate: its product, that without a sign, its root, the root with
the sign again, the sigmoid."""


def ngram_rows(ctx: Context, streams: Tensor) -> tuple[list[Operation], Tensor]:
    """Operations before a layer that has a table, and the streams as the layer then reads them."""
    model, ngrams = ctx.model, ctx.model.ngrams
    if ngrams is None or (table := ngrams.table(ctx.layer)) is None:
        return [], streams
    tokens, hidden, act = ctx.sharded_tokens, model.hidden, ctx.activation
    wide, stream = streams.elements, ctx.precision.stream_bytes
    vector = Tensor(f"{NAME}.vector", tokens * ngrams.width, ctx.precision.kept_input_bytes, "s b e")
    width = wide / tokens
    raw = Tensor(f"{NAME}.key_raw", wide, act, "s b n h")
    gated = Tensor(f"{NAME}.gated", wide, stream, "s b n h")
    count = model.residual_streams
    operations = [
        _lookup(ctx, ngrams.rows[table], vector),
        linear(ctx, f"{NAME}.key", tokens, ngrams.width, width, vector, sharded=False, cast_input=True),
        linear(ctx, f"{NAME}.value", tokens, ngrams.width, hidden, vector, sharded=False, cast_input=True),
        norm(ctx, f"{NAME}.key_norm", tokens, count * hidden, raw, groups=count),
        norm(ctx, f"{NAME}.query_norm", tokens, count * hidden, streams, groups=count),
        _gate(ctx, raw, gated),
        norm(ctx, f"{NAME}.gated_norm", tokens, count * hidden, gated, groups=count),
        *_convolution(ctx, gated),
    ]
    return operations, streams._replace(name="layer.enriched")


def _lookup(ctx: Context, rows: int, vector: Tensor) -> Operation:
    """Rows by their numbers, which are kept; backward adds their gradients up in zeros as large as the table."""
    ngrams, layout = ctx.model.ngrams, ctx.layout
    assert ngrams is not None
    given = vector._replace(name=f"{NAME}.looked_up", bytes_each=ctx.precision.stream_bytes)
    columns = ngrams.width // ngrams.lookups
    tokens = vector.elements / ngrams.width
    return Operation(
        f"{NAME}.lookup", "embedding", bytes_read=given.size_bytes, bytes_written=given.size_bytes,
        shape=(tokens, ngrams.width),
        saved=(Tensor(f"{NAME}.ids", tokens * ngrams.lookups, INDEX_BYTES, "s b i index"),),
        transient_backward=(given._replace(name=f"{NAME}.output_gradient"),),
        parameters=(Parameter(NGRAM_TABLE, rows * columns / layout.tp, "embedding", rows / layout.tp, columns),),
        collectives=(Collective("all_reduce", "tp", given.size_bytes * (layout.tp > 1), "forward"),),
    )  # fmt: skip


def _gate(ctx: Context, raw: Tensor, gated: Tensor) -> Operation:
    """Keys times streams, both normed, summed to one number for each stream, whose signed root a sigmoid takes; times
    the value."""
    count, act = ctx.model.residual_streams, ctx.activation
    key = raw._replace(name=f"{NAME}.key_normed")
    query = gated._replace(name=f"{NAME}.query_normed")
    value = raw._replace(name=f"{NAME}.value", elements=raw.elements / count)
    small = Tensor(f"{NAME}.gates", SMALL * ctx.sharded_tokens * count, gated.bytes_each, "s b n")
    return Operation(
        f"{NAME}.gate", "elementwise", bytes_read=key.size_bytes + query.size_bytes + value.size_bytes,
        bytes_written=gated.size_bytes, shape=(gated.elements,), saved=(key, query, value, small),
        transient_backward=(key._replace(bytes_each=act, name=f"{NAME}.key_gradient"),
                            query._replace(name=f"{NAME}.query_gradient")),
    )  # fmt: skip


def _convolution(ctx: Context, gated: Tensor) -> list[Operation]:
    """One filter for each element of each stream, over tokens some way apart, and its activation; padded in front of
    each sequence. Then the sum of what is gated, what is convolved, and the streams."""
    ngrams, act = ctx.model.ngrams, ctx.activation
    assert ngrams is not None
    width = gated.elements / ctx.sharded_tokens
    before = (ngrams.taps - 1) * ngrams.spacing
    padded = gated.elements * (1 + before / ctx.layout.seq)
    flops = 2 * gated.elements * ngrams.taps
    read = Tensor(f"{NAME}.padded", padded, act, "b n h s")
    made = Tensor(f"{NAME}.convolved", gated.elements, act, "b n h s")
    return [
        Operation(
            f"{NAME}.convolution", "elementwise", flops, 2 * flops, read.size_bytes, made.size_bytes,
            shape=(gated.elements,), saved=(read, made), transient_backward=(made._replace(name=f"{NAME}.gradient"),),
            parameters=(Parameter(f"{NAME}.convolution.weight", width * ngrams.taps, "vector", tensor_parallel=False),),
        ),
        Operation(
            f"{NAME}.added", "elementwise", bytes_read=2 * gated.size_bytes + made.size_bytes,
            bytes_written=gated.size_bytes, shape=(gated.elements,),
        ),
    ]  # fmt: skip
