"""One key for several tokens: two projections of the hidden state, of which one weighs the other within a window of
tokens (DeepSeek-V4). Windows that overlap by half read as many tokens again, by projections twice as wide."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import linear
from distsim.layers.names import POSITION_BIAS
from distsim.layers.norm import norm
from distsim.units import FP32_BYTES

OVERLAPPING = 2
"""Windows that a token is read by where they overlap."""


def compressor(ctx: Context, name: str, source: Tensor, ratio: int, width: Number, overlaps: bool) -> list[Operation]:
    """Rows that make one key, ``width`` wide, of every ``ratio`` tokens of ``source``."""
    own, act, hidden = ctx.layout.tokens / ctx.layout.sequence_shard, ctx.activation, ctx.model.hidden
    wide = (OVERLAPPING if overlaps else 1) * width
    projections = [
        linear(ctx, f"{name}.{what}", own, hidden, wide, source, sharded=False, cast_input=True)
        for what in ("keys", "weights")
    ]
    both = Tensor(f"{name}.projected", 2 * own * wide, act, "s b 2d")
    kept: tuple[Tensor, ...] = (both,)
    if ctx.kernels.norm == "eager":  # a softmax in fp32, its cast, and windows laid out
        kept = (
            Tensor(f"{name}.softmax", own * wide, FP32_BYTES, "s b d fp32"),
            Tensor(f"{name}.windows", 2 * own * wide, act, "s b 2d"),
        )
    pooled = Tensor(f"{name}.raw", own / ratio * width, act, "s/r b d")
    bias = Parameter(f"{name}{POSITION_BIAS}", ratio * wide, "vector", tensor_parallel=False)
    return [
        *projections,
        Operation(
            f"{name}.pool", "elementwise", bytes_read=both.size_bytes, bytes_written=pooled.size_bytes,
            shape=(own * wide,), saved=kept, transient_backward=(both._replace(name=f"{name}.gradient"),),
            parameters=(bias,),
        ),
        norm(ctx, f"{name}.norm", own / ratio, width, pooled, per_head=True),
    ]  # fmt: skip
