"""What making masks of tokens and slots moves through memory in plain torch."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.plain_costs import SUMMED
from distsim.layers.ledger import Operation
from distsim.units import FP32_BYTES, MASK_BYTES


def mask_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes, forward and backward, of masks: for each of a token's experts an outer product in fp32,
    their sum, a comparison with zero, and a cast of both masks to what products take. Backward casts the
    gradient of routers' weights and reads it once for each outer product; the mask of booleans has none
    (deepspeedai/DeepSpeed moe/sharded_moe.py, top2gating and MOELayer)."""
    experts, act = setup.model.experts, setup.precision.activation_bytes
    assert experts is not None
    choices = experts.per_token
    made = FP32_BYTES * choices + SUMMED * FP32_BYTES * (choices - 1)
    compared = FP32_BYTES + MASK_BYTES
    cast = (MASK_BYTES + act) + (FP32_BYTES + act)
    elements = operation.shape[0]
    return elements * (made + compared + cast), elements * (act + FP32_BYTES + FP32_BYTES * choices)
