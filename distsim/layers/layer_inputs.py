"""Per-layer embeddings: what stands beside the embedding, and the narrow branch at the end of each layer (Gemma 3n, 4).

Every tensor-parallel rank holds the projections whole; the table is shared out like the embedding's.
"""

from __future__ import annotations

from distsim.arrays import where
from distsim.layers.attention import residual
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.names import PREACTIVATION
from distsim.layers.norm import norm
from distsim.units import FP32_BYTES

NAME = "layer_inputs"
SLICE = "layer_input.slice"
"""Taking a layer's own input out of all layers': a view forward, but backward a tensor as large as all of them."""


def _all_layers(ctx: Context) -> Tensor:
    """One narrow vector per token and layer, alive until the first layer's backward; a product's output is as wide as
    activations are, which a table's is not under autocast."""
    inputs = ctx.model.layer_inputs
    assert inputs is not None
    each = ctx.precision.stream_bytes if inputs.rows else ctx.activation
    return Tensor(NAME, ctx.sharded_tokens * ctx.model.layers * inputs.width, each, "s b L w")


def lookup_rows(ctx: Context) -> list[Operation]:
    """The second table's lookup, the projection of the embedding, its norm, and their sum, or the projection and its
    norm alone; none in most models.

    The projection's input is that of the first layer too, which keeps it as such unless its norm keeps a wide copy.
    """
    model, inputs = ctx.model, ctx.model.layer_inputs
    if inputs is None:
        return []
    whole, tokens = _all_layers(ctx), ctx.sharded_tokens
    width, rows = model.layers * inputs.width, inputs.rows / ctx.layout.vocab_ranks
    table = Operation(
        f"{NAME}.lookup", "embedding", bytes_read=whole.size_bytes, bytes_written=whole.size_bytes,
        shape=(tokens, width),
        transient_backward=(whole._replace(name=f"{NAME}.gradient"),),
        parameters=(Parameter(f"{NAME}.table", rows * width, "embedding", rows, width),),
        collectives=(Collective("all_reduce", "tp", whole.size_bytes * (ctx.layout.tp > 1), "forward"),),
    )  # fmt: skip
    copied = ctx.kernels.norm == "eager" and ctx.precision.stream_bytes < FP32_BYTES
    stands_alone = where(ctx.layout.recompute_layers != 0, 0, 1) * copied
    stands_alone = 1 if model.streams or ctx.precision.autocast else stands_alone
    source = Tensor(f"{NAME}.source", tokens * model.hidden * stands_alone, ctx.precision.kept_input_bytes, "s b h")
    projected = whole._replace(name=f"{NAME}.projected", bytes_each=ctx.activation)
    projection = linear(ctx, f"{NAME}.projection", tokens, model.hidden, width, source, sharded=False)
    normed = norm(ctx, f"{NAME}.norm", tokens * model.layers, inputs.width, projected)
    if not inputs.rows:
        return [projection, normed._replace(saved=(*normed.saved, whole))]
    return [
        table, projection, normed,
        Operation(f"{NAME}.sum", "elementwise", bytes_read=2 * whole.size_bytes, bytes_written=whole.size_bytes,
                  shape=(whole.elements,), saved=(whole,)),
    ]  # fmt: skip


def branch(ctx: Context) -> list[Operation]:
    """Down to the narrow width, an activation times the layer's own input, back, a norm, and the addition."""
    model, inputs = ctx.model, ctx.model.layer_inputs
    if inputs is None:
        return []
    tokens, act, kept = ctx.sharded_tokens, ctx.activation, ctx.precision.kept_input_bytes
    stream, narrow = tokens * model.hidden, tokens * inputs.width
    whole = _all_layers(ctx)._replace(name="layer_input.gradients")
    slicing = Operation(SLICE, "elementwise", bytes_written=whole.size_bytes, shape=(whole.elements,))
    before = Tensor(f"layer_input{PREACTIVATION}", narrow, act, "s b w")
    own = [before]
    if ctx.kernels.activation == "eager":
        own.append(before._replace(name="layer_input.activated"))
    product = Tensor("layer_input.product", narrow, kept, "s b w")
    wide = Tensor("layer_input.branch", stream, kept, "s b h")
    return [
        linear(ctx, "layer_input.narrow", tokens, model.hidden, inputs.width,
               Tensor("layer_input.source", stream, kept, "s b h"), sharded=False),
        *([slicing] if ctx.kernels.norm == "eager" else ()),
        Operation("layer_input.activation", "elementwise", bytes_read=2 * narrow * act, bytes_written=narrow * act,
                  shape=(narrow,), saved=tuple(own),
                  transient_backward=(before._replace(name="layer_input.gradient"), whole, whole), role="activation"),
        linear(ctx, "layer_input.widen", tokens, inputs.width, model.hidden, product, sharded=False),
        norm(ctx, "layer_input.norm", tokens, model.hidden, wide),
        *(one._replace(saved=()) for one in residual(ctx, "layer_input.residual")),
    ]  # fmt: skip
