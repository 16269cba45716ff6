"""A vector of a token from a table of a layer's own, which a gate for each head scales and attention's values gain
(karpathy/nanochat gpt.py since January 2026, in every second layer).

Ranks of tensor parallelism share heads, and so columns of the table. The gate reads a few channels of attention's
input: its weights, some dozens a head, and its product are not counted.
"""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.embedding import held_as
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.names import VALUE_TABLE


def value_embedding(ctx: Context, value: Tensor, heads: Number) -> list[Operation]:
    """The lookup and the gated addition to ``value``, of so many ``heads`` on a rank; none in other layers. Backward
    reads what was looked up, for the gate's gradient, and the gate (torch 2.13 keeps both, compiled or not)."""
    if not ctx.model.has_value_embedding(ctx.layer):
        return []
    tokens, width = ctx.layout.tokens, value.elements / ctx.layout.tokens
    found = value._replace(name="attention.value_embedding", bytes_each=ctx.stream_bytes)
    gate = Tensor("attention.value_gate", tokens * heads, value.bytes_each, "s b k")
    lookup = Operation(
        "attention.value_lookup", "embedding", bytes_read=found.size_bytes, bytes_written=found.size_bytes,
        shape=(tokens, width),
        transient_backward=(found._replace(name="attention.value_embedding_gradient"),),
        parameters=(
            Parameter(VALUE_TABLE, ctx.vocab_padded * width, "embedding", ctx.vocab_padded, width, held=held_as(ctx)),
        ),
    )  # fmt: skip
    gated = Operation(
        "attention.value_gated", "elementwise",
        bytes_read=found.size_bytes + gate.size_bytes + value.size_bytes, bytes_written=value.size_bytes,
        shape=(value.elements,), saved=(found, gate),
        transient_backward=(gate._replace(name="attention.value_gate_gradient"),),
    )  # fmt: skip
    return [lookup, gated]
