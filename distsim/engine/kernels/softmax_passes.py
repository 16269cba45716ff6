"""What the softmax of composed attention moves through memory."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.layers import core_attention
from distsim.layers.ledger import Operation
from distsim.units import FP32_BYTES

# Bytes per score that a softmax composed in fp32 moves beyond a fused one, forward and backward. Forward: cast (6),
# scale (8), mask in place (9), softmax (8), cast (6), for 4. Backward: cast (6), softmax (12), mask (9), scale (8),
# cast (6), for 6. Source of the steps: NVIDIA/Megatron-LM, fused_softmax.py, forward_torch_softmax.
COMPOSED_SOFTMAX = (33.0, 35.0)
COMPOSED_SOFTMAX_KERNELS = 4
"""Launches beyond that of a fused softmax, each way."""
SPILLED_SOFTMAX = (20.0, 20.0)
"""Bytes per score, forward and backward, of a softmax whose warps hold a row that does not fit their registers, as its
arrays in fp32 lie in memory then. Forward: scores loaded (4), read for the maximum (4), for exponentials and their sum
(8), and to be written (4); backward: weights and products with their gradients loaded (8), products read for their sum
(4), both read to be written (8) (NVIDIA/TransformerEngine common/fused_softmax/scaled_masked_softmax.cu,
scaled_masked_softmax_warp_forward and _backward)."""
SOFTMAX_STEPS_KERNELS = 3
"""Launches beyond that of a softmax, each way, where plain torch scales, masks and casts: about as many of each."""


def softmax_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes through memory, forward and backward, of the softmax and of the steps around it."""
    compiled = setup.kernels.softmax_kernel == "compiled"
    forward, backward = _reduced_bytes(operation) if compiled else _kept_bytes(operation)
    again, spilled, steps = composed_softmax(setup), _spills(setup), _steps_bytes(setup)
    more, later = (
        where(again > 0, composed, spilled * memory) + step
        for composed, memory, step in zip(COMPOSED_SOFTMAX, SPILLED_SOFTMAX, steps, strict=True)
    )
    return forward + operation.shape[0] * more, backward + operation.shape[0] * later


def _kept_bytes(operation: Operation) -> tuple[Number, Number]:
    """The softmax reads scores and writes weights; dropout, and a cast, read these and write what multiplies values.
    Backward passes over gradients instead, beside what was kept."""
    scores, written = operation.bytes_read, operation.bytes_written
    saved = [tensor for tensor in operation.saved if tensor.name != core_attention.COMPOSED]
    kept = sum(tensor.size_bytes for tensor in saved)
    mask = sum(tensor.size_bytes for tensor in saved if tensor.name.endswith(".dropout_mask"))
    softmax = kept - mask
    forward, backward = scores + 2 * softmax + mask + written, 2 * written + mask + 2 * scores + softmax
    if len(saved) > 1:
        return forward, backward
    alone = written == kept  # weights are written as they are kept
    return where(alone, scores + kept, forward), where(alone, 2 * scores + kept, backward)


def _spills(setup: Setup) -> Number:
    """1 where a row of keys is longer than the registers of the warp that takes its softmax."""
    most = setup.kernels.softmax_registers
    return where(setup.layout.seq > most, 1, 0) if most else 0


def plain_torch(setup: Setup) -> bool:
    """Whether elementwise steps are kernels of their own, as plain torch runs them: scores are scaled and masked before
    their softmax is taken, each in one."""
    return setup.kernels.softmax_kernel == "steps" and not setup.compiled


def _steps_bytes(setup: Setup) -> tuple[float, float]:
    """Bytes per score, forward and backward, of the steps around a softmax of plain torch.

    Forward scale and mask, which read and write scores; backward the scale; both ways a causal mask that chooses.
    Autocast casts what the softmax reads, and its gradient back; softmax(dtype=float32) reads narrow scores itself,
    where ``_kept_bytes`` has wide ones.
    """
    if not plain_torch(setup):
        return 0.0, 0.0
    narrow, autocast = setup.precision.activation_bytes, setup.precision.autocast
    read = narrow + FP32_BYTES if autocast else narrow - FP32_BYTES if setup.kernels.softmax == "eager" else 0.0
    chosen = 2 * narrow * setup.kernels.mask_chosen
    return 4 * narrow + read + chosen, 2 * narrow + (2 * FP32_BYTES if autocast else 0.0) + chosen


def _reduced_bytes(operation: Operation) -> tuple[Number, Number]:
    """A softmax whose kernels end at each reduction: scores are read for their maximum, for the sum of exponentials and
    for the weights; backward the weights and their gradients for a sum of products, and for the scores' gradients."""
    scores, written = operation.bytes_read, operation.bytes_written
    return 3 * scores + written, 4 * scores + written


def composed_softmax(setup: Setup) -> Number:
    """1 where a layout does not meet what the framework's fused softmax asks for, else 0."""
    return core_attention.composed_softmax(setup.kernels, setup.layout, setup.model.heads)
