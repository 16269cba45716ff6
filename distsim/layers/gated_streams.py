"""What a sublayer reads of several residual streams where each element has a gate of its own (Qwen4-Exp): every stream
is normed, a narrow MLP of all of them gives sigmoids, and the mean of what these let pass is what the sublayer reads,
which has no norm of its own. Another product of the normed streams gives the weights by which its output is written.

Every tensor-parallel rank holds the products whole.
"""

from __future__ import annotations

from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.layers.norm import norm

WEIGHTS = 2
"""Weights per stream and token that are kept where an output is written: the sigmoid, and it doubled."""


def gated_read(ctx: Context, name: str, streams: Tensor, *, writes: bool = True) -> list[Operation]:
    """Rows up to what a sublayer reads; ``writes`` where its output goes back to the streams."""
    model, rows, act = ctx.model, ctx.sharded_tokens, ctx.activation
    count, rank, hidden, kept = model.residual_streams, model.stream_rank, model.hidden, ctx.precision.kept_input_bytes
    assert rank is not None
    wide = count * hidden
    normed = Tensor(f"{name}.streams_normed", rows * wide, kept, "s b n h")
    before = Tensor(f"{name}.stream_narrow", rows * rank, act, "s b r")
    after = Tensor(f"{name}.stream_activated", rows * rank, kept, "s b r")
    operations = [
        norm(ctx, f"{name}.stream_norm", rows, wide, streams, groups=count),
        linear(ctx, f"{name}.stream_down", rows, wide, rank, normed, sharded=False, cast_input=True),
        Operation(
            f"{name}.stream_activation", "elementwise", bytes_read=before.size_bytes, bytes_written=before.size_bytes,
            shape=(rows * rank,), saved=(before,),
        ),
        linear(ctx, f"{name}.stream_up", rows, rank, wide, after, sharded=False),
    ]  # fmt: skip
    if writes:
        operations.append(
            linear(ctx, f"{name}.stream_weights", rows, wide, count, normed, sharded=False, cast_input=True)
        )
    operations = [one._replace(role="norm gate") if one.kind == "matmul" else one for one in operations]
    return [*operations, _gated(ctx, name, normed, writes)]


def _gated(ctx: Context, name: str, normed: Tensor, writes: bool) -> Operation:
    """The mean over streams of what the gates let pass, which reads them as the norm gave them; and the sigmoids by
    which the sublayer's output is written."""
    rows, count = ctx.sharded_tokens, ctx.model.residual_streams
    given = normed._replace(bytes_each=ctx.precision.stream_bytes)
    gate = Tensor(f"{name}.stream_gate", normed.elements, ctx.activation, "s b n h")
    gradients = (gate._replace(name=f"{name}.stream_gate_gradient"), given._replace(name=f"{name}.gradient"))
    weights = Tensor(f"{name}.stream_sigmoids", WEIGHTS * writes * rows * count, ctx.activation, "s b n")
    return Operation(
        f"{name}.mix", "elementwise", bytes_read=given.size_bytes + gate.size_bytes,
        bytes_written=given.size_bytes / count, shape=(normed.elements,), saved=(given, gate, weights),
        transient_backward=gradients, role="stream sum",
    )  # fmt: skip
