"""Residual streams side by side (alternating updates) and the low-rank way around attention: Gemma 3n.

Baykal et al. 2023, arXiv:2301.13310; Menghani et al. 2024, arXiv:2411.07501. Every tensor-parallel rank holds these
small matrices whole.
"""

from __future__ import annotations

from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Weights, linear
from distsim.layers.norm import norm
from distsim.units import FP32_BYTES

NAME = "streams"
UNSCALED = ".unscaled"
"""How the name of what only the gradient of a scale needs ends."""
EAGER_PASSES = 3.5
"""Readings, and writings, of all streams while plain torch predicts or corrects them, in the mean of both: a product
and a copy in another order read and write them once, a sum reads two (transformers, modeling_gemma3n.py)."""
TRANSIENT_GRADIENTS = 5
"""Gradients of all streams that backward has at once in plain torch: of the sum, of what was added to a part of it in
place (a copy), of a slice (zeros around it), and of both factors of a product."""
KEPT_OF_SCALING = 2
"""What giving a stream the first one's magnitude keeps: it, for its square, and its product with that magnitude."""


def stream_count(ctx: Context) -> int:
    """Residual streams: one in most models."""
    return ctx.model.streams.count if ctx.model.streams else 1


def _stream(ctx: Context, name: str, count: float = 1) -> Tensor:
    """So many streams, as the residual stream is held."""
    return Tensor(name, ctx.sharded_tokens * ctx.model.hidden * count, ctx.precision.stream_bytes, "n s b h")


def slice_of_all(ctx: Context, name: str) -> Tensor:
    """One stream as a norm reads it, a slice of all: these are kept whole where the norm makes no wider copy."""
    whole = ctx.precision.stream_bytes == FP32_BYTES or ctx.kernels.norm != "eager"
    return _stream(ctx, name, stream_count(ctx) if whole else 1)


def _passes(ctx: Context) -> float:
    return EAGER_PASSES if ctx.kernels.norm == "eager" else 1


def predict(ctx: Context) -> list[Operation]:
    """All streams from all, by coefficients that the active one gives; before the layer."""
    count = stream_count(ctx)
    if count == 1:
        return []
    tokens, act = ctx.sharded_tokens, ctx.activation
    squared = tokens * count**2
    given = Tensor(f"{NAME}.predict.given", tokens * count, act, "s b n")
    whole = _stream(ctx, f"{NAME}.entered", count)
    if ctx.precision.autocast:
        whole = whole._replace(name=f"{NAME}.before", bytes_each=act)
    mixed = (whole, Tensor(f"{NAME}.predict.coefficients", squared, act, "s b n n"))
    return [
        *_routing(ctx, "predict", slice_of_all(ctx, f"{NAME}.entered")),
        linear(ctx, f"{NAME}.predict.coefficients", tokens, count, count**2, given, sharded=False),
        _all_streams(ctx, "predict", mixed),
    ]


def correct(ctx: Context) -> list[Operation]:
    """All streams by what the layer made of the active one, whose scaled copy goes on to the layer's own input."""
    count = stream_count(ctx)
    if count == 1:
        return []
    tokens, act = ctx.sharded_tokens, ctx.activation
    given = Tensor(f"{NAME}.correct.given", tokens * count, act, "s b n")
    coefficients = linear(ctx, f"{NAME}.correct.coefficients", tokens, count, count, given, sharded=False)
    mixed = (_stream(ctx, f"{NAME}.innovation", count), given._replace(name=f"{NAME}.correct.coefficients"))
    scale = Parameter(f"{NAME}.scale", ctx.model.hidden, "vector", tensor_parallel=False)
    routed = (one._replace(parameters=()) for one in _routing(ctx, "correct", _stream(ctx, f"{NAME}.activated")))
    one = _stream(ctx, f"{NAME}{UNSCALED}")
    scaling = Operation(
        f"{NAME}.scaling", "elementwise", bytes_read=one.size_bytes, bytes_written=one.size_bytes,
        shape=(one.elements,), saved=(one,), parameters=(scale,),
    )  # fmt: skip
    return [*routed, coefficients, _all_streams(ctx, "correct", mixed), scaling]


def _routing(ctx: Context, when: str, source: Tensor) -> list[Operation]:
    """A norm and a product, the same before and after the layer, and a tanh in fp32."""
    tokens, hidden, count = ctx.sharded_tokens, ctx.model.hidden, stream_count(ctx)
    kept = Tensor(f"{NAME}.{when}.input", tokens * hidden, ctx.precision.kept_input_bytes, "s b h")
    routed = Tensor(f"{NAME}.{when}.routed", tokens * count, FP32_BYTES, "s b n fp32")
    product = linear(ctx, f"{NAME}.{when}.router", tokens, hidden, count, kept, sharded=False)
    return [
        norm(ctx, f"{NAME}.{when}.norm", tokens, hidden, source),
        product._replace(saved=(*product.saved, routed)),
    ]


def _all_streams(ctx: Context, when: str, saved: tuple[Tensor, ...]) -> Operation:
    moved = _stream(ctx, "all", stream_count(ctx)).size_bytes * _passes(ctx)
    return Operation(
        f"{NAME}.{when}", "elementwise", bytes_read=moved, bytes_written=moved, shape=(saved[0].elements,), saved=saved,
        transient_backward=(_stream(ctx, f"{NAME}.{when}.gradient", stream_count(ctx)),) * TRANSIENT_GRADIENTS,
    )  # fmt: skip


def bypass(ctx: Context, source: Tensor) -> list[Operation]:
    """Two narrow products and a norm beside attention; ``source`` is what attention reads."""
    if ctx.model.streams is None:
        return []
    tokens, hidden, rank = ctx.sharded_tokens, ctx.model.hidden, ctx.model.streams.bypass_rank
    kept = ctx.precision.kept_input_bytes
    return [
        linear(ctx, "bypass.narrow", tokens, hidden, rank, source, sharded=False),
        linear(ctx, "bypass.widen", tokens, rank, hidden, Tensor("bypass.inner", tokens * rank, kept, "s b r"),
               sharded=False),
        norm(ctx, "bypass.norm", tokens, hidden, Tensor("bypass.branch", tokens * hidden, kept, "s b h")),
    ]  # fmt: skip


def spread(ctx: Context) -> list[Operation]:
    """The embedding made into all streams: a product for each but the first, scaled to its magnitude."""
    return _own_products(ctx, f"{NAME}.spread", _stream(ctx, f"{NAME}.first"), "layer_inputs.source")


def gather(ctx: Context) -> list[Operation]:
    """All streams after the last layer, through products of their own, to their mean."""
    return _own_products(ctx, f"{NAME}.gather", _stream(ctx, f"{NAME}.last", stream_count(ctx)), f"{NAME}.last")


def _own_products(ctx: Context, name: str, whole: Tensor, read: str) -> list[Operation]:
    """Products of the other streams, which read ``whole`` as such, by the name ``read``, unless they cast it."""
    others = stream_count(ctx) - 1
    if not others:
        return []
    tokens, hidden = ctx.sharded_tokens, ctx.model.hidden
    scaled = _stream(ctx, f"{name}.scaled", others * KEPT_OF_SCALING)
    source = whole = whole if ctx.precision.autocast else whole._replace(name=read)
    if ctx.precision.autocast:
        source = Tensor(read, tokens * hidden, ctx.precision.kept_input_bytes, "s b h")
    moved = _stream(ctx, "all", others).size_bytes * _passes(ctx)
    return [
        linear(ctx, name, tokens, hidden, hidden * others, source, weights=Weights(others), sharded=False,
               cast_input=True),
        Operation(f"{name}.magnitude", "elementwise", bytes_read=moved, bytes_written=moved, shape=(tokens,),
                  saved=(scaled, whole)),
    ]  # fmt: skip
