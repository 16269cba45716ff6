"""What norms of plain torch move and launch: by kernels of its own, or composed of elementary operations."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.plain_costs import COMPOSED_PACE, Cost, Pace, slowed
from distsim.layers.ledger import Operation
from distsim.specs.accelerator import Accelerator
from distsim.units import FP32_BYTES

LAYER_NORM_PACE = Pace(16.0)
# RMSNorm in fp32. Of 2-byte elements: cast (6), square (8), mean (4), product with the root (8), cast (6), weight (4).
# Backward: weight (4), its gradient (6) and sum (2), cast (6), product with the root (8), the root's gradient (12) and
# sum (4), the square's (24), sum of both (12), cast (6). Of fp32 elements: without casts, products twice as wide.
# Layer norm in fp32, as Cohere's in transformers: cast (6), mean (4), difference, square (8 each), mean (4), difference
# once more, product with the root, weight (8 each), cast (6). Backward: cast (6), weight (8), its gradient (12) and sum
# (4), product with the root (8), the root's gradient (12) and sum (4), the square's (24), minus and sum of both
# differences (24), the mean's (4), sums of the three (24), cast (6). Of fp32 elements: without casts.
COMPOSED_BYTES = {
    "rmsnorm": {2: (36.0, 84.0), 4: (28.0, 84.0)},
    "layernorm": {2: (60.0, 136.0), 4: (48.0, 124.0)},
}
EAGER_NORM = Cost(
    kernels=(7, 12)
)  # torch issues 6 and 14, or 8 and 16 with casts (docs/findings/hosts-and-small-jobs.md)
EAGER_LAYER_NORM = Cost(kernels=(12, 20))
# Layer norm that a network's author wrote, in the format of its input: (x - mean) / sqrt(variance + e) * scale + shift.
# Passes over the input: mean, variance (1 each), difference, quotient, product, sum (2 each). Backward: the shift's sum
# (1), product with the scale (2), the scale's gradient (3) and sum (1), quotient (2), the root's gradient (two
# quotients, minus and a product, 9) and sum (1), minus and sum of the difference (3), the variance's (mean, difference,
# product, 5), the mean's (1), sums of the three (6).
WRITTEN_PASSES = (10.0, 34.0)
WRITTEN_NORM = Cost(kernels=(8, 20))
# Layer norm as torch's own kernels make it, in passes over its input: forward reads it for its statistics and again for
# its result; backward reads input and gradient for two sums and again for the result, and another kernel both for the
# weights' gradients (pytorch/pytorch aten/src/ATen/native/cuda/layer_norm_kernel.cu). Of fp32 rows 2,048 to 16,384 wide
# 11 to 13 and 26 to 28 bytes an element at 0.8 of the bandwidth on A100 and H100 (linkedin/Liger-Kernel benchmark/).
# RMSNorm has one statistic less: 2.5 and 6.1 passes over rows 4,096 wide in bf16 and in fp32 at the mean share of the
# bandwidth (tests/oracles/gpu_kernels.csv, "rms_norm torch").
NORM_PASSES = {"layernorm": (3.0, 7.0), "rmsnorm": (2.5, 6.0)}
# Of these, backward's for the gradients of weights, which torch and compilers leave out where none is asked for.
COMPOSED_WEIGHT_BYTES = {"rmsnorm": {2: 8.0, 4: 16.0}, "layernorm": {2: 16.0, 4: 16.0}}
WRITTEN_WEIGHT_PASSES = 5.0
WEIGHT_PASSES = 2.0
WEIGHT_KERNELS = {"": 1, "rmsnorm": 2, "layernorm": 2, "written": 4}
"""Launches of the same, by ``composed_norm``."""


def plain_norms(setup: Setup) -> bool:
    """Whether norms are those of plain torch: by its kernels or composed of elementary operations."""
    compiled = setup.compiled or setup.kernels.compiler != "none"
    own = setup.kernels.norm == "eager" or setup.kernels.norm_kernel == "torch" or composed_norm(setup) != ""
    return own and not compiled


def composed_norm(setup: Setup) -> str:
    """How a norm is composed of elementary operations: a key of COMPOSED_BYTES, ``written``, or nothing where a kernel
    computes it."""
    if setup.model.norm == "rmsnorm":
        return "rmsnorm" if setup.kernels.norm == "eager" else ""
    return {"eager": "layernorm", "written": "written"}.get(setup.kernels.layernorm, "")


def skips_weights(setup: Setup, operation: Operation) -> bool:
    """Whether a norm's backward makes no gradient of its weights, as they are frozen. Kernels of Transformer Engine and
    Apex make it all the same."""
    if operation.kind != "norm" or not operation.parameters or any(one.trains for one in operation.parameters):
        return False
    return plain_norms(setup) or setup.compiled or setup.kernels.compiler != "none"


def weight_kernels(setup: Setup, operation: Operation) -> int:
    """Kernels of weights' gradients that are among a norm's and that it does not launch."""
    return WEIGHT_KERNELS[composed_norm(setup) if plain_norms(setup) else ""] * skips_weights(setup, operation)


def norm_cost(setup: Setup) -> Cost:
    """Launches of a norm beside those of one kernel."""
    costs = {"rmsnorm": EAGER_NORM, "layernorm": EAGER_LAYER_NORM, "written": WRITTEN_NORM}
    return costs.get(composed_norm(setup), Cost())


def plain_norm_bytes(
    norm: str, composed: str, elements: Number, read: Number, chip: Accelerator, frozen: bool = False
) -> tuple[Number, Number]:
    """Bytes, forward and backward, that memory would have moved meanwhile, of a norm of plain torch that reads
    ``elements`` of ``read`` bytes in all: by its kernel for ``norm``, or ``composed`` (see ``composed_norm``)."""
    if not composed or composed == "written":
        passes, pace = (WRITTEN_PASSES, COMPOSED_PACE) if composed else (NORM_PASSES[norm], LAYER_NORM_PACE)
        slower, left_out = slowed(pace, chip), (WRITTEN_WEIGHT_PASSES if composed else WEIGHT_PASSES) * frozen
        return read * passes[0] * slower, read * (passes[1] - left_out) * slower
    fp32 = where(read > 2 * elements, 1, 0)
    (before, after), (wide_before, wide_after) = COMPOSED_BYTES[composed][2], COMPOSED_BYTES[composed][FP32_BYTES]
    left_out, wide_left_out = (COMPOSED_WEIGHT_BYTES[composed][each] * frozen for each in (2, FP32_BYTES))
    after, wide_after = after - left_out, wide_after - wide_left_out
    slower = slowed(COMPOSED_PACE, chip)
    return (
        elements * (before + fp32 * (wide_before - before)) * slower,
        elements * (after + fp32 * (wide_after - after)) * slower,
    )
