"""Several residual streams, which each sublayer reads as a sum and writes to by weights that a small product of all of
them gives token by token (hyper-connections, arXiv:2409.19606). They go on by themselves (Hy4), or mixed by a matrix
whose rows and columns sum to one, which the product gives, too (DeepSeek-V4). Where elements have gates of their own
(Qwen4-Exp), what is read is in gated_streams.py."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.formulas.compute import product_flops
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.units import FP32_BYTES

SMALL = 8
"""Numbers per stream and token that the eager code keeps around its sigmoids: products twice for reading and writing
together, scaled and not, sums, and both weights."""
NORMALISED = 2
"""Times that each step towards a doubly stochastic matrix divides it, by the sums of its rows and of its columns."""
END_SMALL = 4
"""The same where streams are read for the last time."""


def read_streams(ctx: Context, name: str, streams: Tensor) -> tuple[list[Operation], Tensor]:
    """What a sublayer reads of the streams; the stream itself where there is one."""
    if ctx.model.residual_streams == 1:
        return [], streams
    if ctx.model.stream_rank:
        from distsim.layers.gated_streams import gated_read

        return gated_read(ctx, name, streams), _mixed(ctx, name)
    return [_weights(ctx, name, streams, 2, SMALL, ctx.model.stream_mixing), *_sum(ctx, name, streams)], _mixed(
        ctx, name
    )


def write_streams(ctx: Context, name: str) -> list[Operation]:
    """A sublayer's output added to each stream by the weight it has there."""
    count, one = ctx.model.residual_streams, _mixed(ctx, name)
    if count == 1:
        return []
    wide = not (ctx.model.stream_mixing or ctx.model.stream_rank)
    each = FP32_BYTES if ctx.kernels.norm == "eager" and wide else ctx.activation
    branch = Tensor(f"{name}.branch_output", one.elements, each, "s b h")
    return [
        Operation(
            f"{name}.spread", "elementwise",
            bytes_read=(1 + count) * one.size_bytes, bytes_written=count * one.size_bytes,
            shape=(count * one.elements,), saved=(branch,), transient_backward=(branch,), role="stream spread",
        )
    ]  # fmt: skip


def collected(ctx: Context) -> list[Operation]:
    """The sum, or mean, of all streams behind the last layer."""
    if ctx.model.residual_streams == 1:
        return []
    streams = Tensor("head.streams", stream_elements(ctx), ctx.precision.stream_bytes, "s b n h")
    if ctx.model.stream_rank:
        from distsim.layers.gated_streams import gated_read

        return gated_read(ctx, "head", streams, writes=False)
    if ctx.model.streams_averaged:
        return [one._replace(saved=()) for one in _sum(ctx, "head", streams)]
    return [_weights(ctx, "head", streams, 1, END_SMALL), *_sum(ctx, "head", streams)]


def stream_elements(ctx: Context) -> Number:
    """Elements that go from layer to layer on one rank."""
    return ctx.sharded_tokens * ctx.model.hidden * ctx.model.residual_streams


def _mixed(ctx: Context, name: str) -> Tensor:
    return Tensor(f"{name}.mixed", ctx.sharded_tokens * ctx.model.hidden, ctx.precision.stream_bytes, "s b h")


def _weights(ctx: Context, name: str, streams: Tensor, kinds: int, small: int, mixing: int = 0) -> Operation:
    """A narrow product of all streams, in fp32 and scaled by what an RMSNorm would divide by, and its sigmoids; with so
    many steps of ``mixing`` also the matrix between streams, whose product reads them divided."""
    count, rows, eager = ctx.model.residual_streams, ctx.sharded_tokens, ctx.kernels.norm == "eager"
    wide, outer = count * ctx.model.hidden, kinds * count + (count**2 if mixing else 0)
    saved = [Tensor(f"{name}.stream_weights", rows * count * small + rows, FP32_BYTES, "s b n")]
    if eager:
        saved.append(Tensor(f"{name}.streams_fp32", streams.elements, FP32_BYTES, "s b n h fp32"))
        saved.append(Tensor(f"{name}.stream_product_fp32", wide * outer, FP32_BYTES, "n h fp32"))
    if eager and mixing:
        steps = NORMALISED * mixing * (count**2 + count)
        saved.append(Tensor(f"{name}.streams_divided", streams.elements, FP32_BYTES, "s b n h fp32"))
        saved.append(Tensor(f"{name}.stream_matrices", rows * steps, FP32_BYTES, "s b n n fp32"))
    flops = product_flops(rows, wide, outer)
    return Operation(
        f"{name}.stream_weights", "matmul", flops, 2 * flops, streams.size_bytes, rows * outer * FP32_BYTES,
        (rows, outer, wide, 1), tuple(saved), weight_gradient=True, role="stream weights",
        parameters=(
            Parameter(f"{name}.stream_product.weight", wide * outer, "matrix", wide, outer, 1, "dense", False),
            Parameter(f"{name}.stream_product.bias", outer, "vector", tensor_parallel=False),
            Parameter(f"{name}.stream_product.scale", kinds + bool(mixing), "vector", tensor_parallel=False),
        ),
    )  # fmt: skip


def _sum(ctx: Context, name: str, streams: Tensor) -> list[Operation]:
    """All streams read into one."""
    return [
        Operation(
            f"{name}.mix", "elementwise", bytes_read=streams.size_bytes, bytes_written=_mixed(ctx, name).size_bytes,
            shape=(streams.elements,), saved=(streams,),
            transient_backward=(streams._replace(name=f"{name}.gradient"),), role="stream sum",
        )
    ]  # fmt: skip
