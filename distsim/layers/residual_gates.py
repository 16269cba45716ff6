"""Learned vectors that scale a sublayer's output and the residual stream before they are added (Muse Spark;
transformers 5.24, models/muse_spark, MuseSparkResidualGate). One vector makes both: a sigmoid of it, and what leaves
the sum's variance as it was."""

from __future__ import annotations

from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.units import FP32_BYTES


def residual_gate(ctx: Context, name: str, stream: Tensor) -> Operation:
    """Both products and their sum, in fp32 in plain torch. The vector's gradient needs both factors."""
    branch = Tensor(f"{name}.branch_normed", stream.elements, ctx.activation, "s b h")
    read = stream.size_bytes + branch.size_bytes
    return Operation(
        f"{name}.residual_gate", "elementwise", bytes_read=read, bytes_written=stream.size_bytes,
        shape=(stream.elements,), saved=(stream, branch),
        transient_backward=(branch._replace(name=f"{name}.gate_gradient", bytes_each=FP32_BYTES),),
        parameters=(Parameter(f"{name}.residual_gate.weight", ctx.model.hidden, "vector", tensor_parallel=False),),
    )  # fmt: skip
