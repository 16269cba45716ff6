"""What the gated delta rule costs in plain torch: bytes through memory and kernels launched."""

from __future__ import annotations

from distsim.arrays import Number, ceil_div
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.chunk_rule import (
    CHUNK,
    chunk_rule_backward_bytes,
    chunk_rule_backward_kernels,
    chunk_rule_forward_bytes,
    chunk_rule_forward_kernels,
)
from distsim.layers.ledger import Operation


def chunk_rule_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes forward and backward of the rule's row."""
    mixer = setup.model.delta
    assert mixer is not None
    tokens, values, key = operation.shape
    sizes = tokens * values / mixer.value_dim, key, mixer.value_dim
    return chunk_rule_forward_bytes(*sizes), chunk_rule_backward_bytes(*sizes, _chunks(setup))


def chunk_rule_kernels(setup: Setup) -> tuple[Number, Number]:
    """Kernels forward and backward."""
    chunks = _chunks(setup)
    return chunk_rule_forward_kernels(chunks), chunk_rule_backward_kernels(chunks)


def _chunks(setup: Setup) -> Number:
    """Chunks of a sequence; packed samples are one, as the rule in torch knows of no others."""
    return ceil_div(setup.layout.seq, CHUNK)
