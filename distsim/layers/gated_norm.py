"""Norms whose output a narrow MLP of it scales (A.X K2): y sigmoid(W2 silu(W1 y)), the sigmoid in fp32."""

from __future__ import annotations

from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.linear import linear
from distsim.units import FP32_BYTES


def norm_gate(ctx: Context, name: str) -> list[Operation]:
    """Operations behind the norm ``name``, whole on each tensor parallel rank as the norm is; none where it has no
    gate."""
    rank, rows, hidden, act = ctx.model.norm_gate_rank, ctx.sharded_tokens, ctx.model.hidden, ctx.activation
    if rank is None:
        return []
    kept = ctx.precision.kept_input_bytes
    whole = Tensor(f"{name}.ungated", rows * hidden, act, "s b h")
    before = Tensor(f"{name}.gate_narrow", rows * rank, act, "s b r")
    after = Tensor(f"{name}.gate_activated", rows * rank, kept, "s b r")
    gate = Tensor(f"{name}.gate", rows * hidden, FP32_BYTES, "s b h fp32")
    return [
        linear(ctx, f"{name}.gate_down", rows, hidden, rank, whole, sharded=False)._replace(role="norm gate"),
        Operation(
            f"{name}.gate_activation", "elementwise", bytes_read=before.size_bytes, bytes_written=before.size_bytes,
            shape=(rows * rank,), saved=(before,), recompute_class="activation",
        ),
        linear(ctx, f"{name}.gate_up", rows, rank, hidden, after, sharded=False)._replace(role="norm gate"),
        Operation(
            f"{name}.gate", "elementwise", bytes_read=2 * whole.size_bytes, bytes_written=whole.size_bytes,
            shape=(rows * hidden,), saved=(whole, gate), transient_backward=(gate,), recompute_class="norm",
        ),
    ]  # fmt: skip
