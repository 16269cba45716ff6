"""What the softmax of composed attention moves through memory."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.plain_costs import COMPOSED_PACE, SOFTCAP_PASSES, SOFTMAX_PER_CYCLE, Pace, slowed
from distsim.layers import core_attention
from distsim.layers.ledger import Operation
from distsim.layers.names import CROSS, DROPOUT_MASK, PROBABILITIES, SOFTCAP, WIDE_PROBABILITIES
from distsim.units import FP32_BYTES

# Bytes per score that a softmax composed in fp32 moves beyond a fused one, forward and backward. Forward: cast (6),
# scale (8), mask in place (9), softmax (8), cast (6), for 4. Backward: cast (6), product (12), softmax (12), mask (9),
# scale (8), cast (6), for 6. Source of the steps: NVIDIA/Megatron-LM, fused_softmax.py, forward_torch_softmax.
COMPOSED_SOFTMAX = (33.0, 47.0)
COMPOSED_SOFTMAX_KERNELS = (4, 5)
"""Launches beyond that of a fused softmax, forward and backward."""
COMPOSED_WIDE = (17.0, 29.0)
"""Bytes per score that it moves beyond a fused one where scores are in fp32 already: without casts 25 and 41, for 8 and
12."""
COMPOSED_WIDE_KERNELS = (2, 3)
"""Launches beyond that of a fused softmax where scores are in fp32."""
SPILLED_SOFTMAX = (20.0, 20.0)
"""Bytes per score, forward and backward, of a softmax whose warps hold a row that does not fit their registers, as its
arrays in fp32 lie in memory then. Forward: scores loaded (4), read for the maximum (4), for exponentials and their sum
(8), and to be written (4); backward: weights and products with their gradients loaded (8), products read for their sum
(4), both read to be written (8) (NVIDIA/TransformerEngine common/fused_softmax/scaled_masked_softmax.cu,
scaled_masked_softmax_warp_forward and _backward)."""
RELATIVE_PASSES = 3
"""Passes that add a layer's gradient of relative positions' biases, which all layers share, to that of those before it,
as large as the scores of all samples; under autocast in fp32, to which it is cast (transformers models/t5: the mask is
part of the biases)."""
FILLED_PER_CYCLE = 1.65
"""Scores that a unit of the chip masks a cycle at most where their mask is repeated for all heads, whatever their
format, stated as SOFTMAX_PER_CYCLE: 201 million take an H100 586 us in bf16 and 676 in fp32, beside the copy into which
they are written (profile of "gpt2 by hand" in benchmarks/gpu)."""
STEPS_KEPT = (PROBABILITIES, DROPOUT_MASK, SOFTCAP, WIDE_PROBABILITIES)
"""Ends of the names of what is kept of self- or cross-attention that the steps of ``_steps_bytes`` already move."""
WRITTEN_NARROW, WRITTEN_WIDE = (3, 7), (5, 18)
"""Passes over the scores, forward and backward, of a softmax composed of elementary steps: those in the format of the
scores, and those in the format of its result, which autocast makes fp32. Forward: maximum (1), difference (2);
exponential (2), sum (1), quotient (2). Backward, in the narrow one: zeros at the maximum's place (1), gradients of the
difference: minus (2), sum (1), sum of both (3); in the wide one: quotient (2), the sum's gradient (two quotients, minus
and a product, 9) and sum (1), sum of both (3), product with the exponentials (3). Counted on torch 2.13
(benchmarks/torch_passes.py)."""
WRITTEN_KERNELS = (4, 11)
"""Launches of such a softmax beyond that of torch's, forward and backward."""
SOFTMAX_STEPS_KERNELS = (3, 4)
"""Launches beyond that of a softmax, forward and backward, where plain torch scales, masks and casts: about as many of
each, and backward a product."""


def softmax_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes through memory, forward and backward, of the softmax and of the steps around it."""
    if plain_torch(setup):
        return _steps_bytes(setup, operation)
    compiled = setup.kernels.softmax_kernel == "compiled"
    forward, backward = _reduced_bytes(operation) if compiled else _kept_bytes(operation)
    again, spilled = composed_softmax(setup), _spills(setup)
    steps = COMPOSED_WIDE if _wide(setup) else COMPOSED_SOFTMAX
    more, later = (
        where(again > 0, composed, spilled * memory) for composed, memory in zip(steps, SPILLED_SOFTMAX, strict=True)
    )
    return forward + operation.shape[0] * more, backward + operation.shape[0] * later


def _kept_bytes(operation: Operation) -> tuple[Number, Number]:
    """The softmax reads scores and writes weights; dropout, and a cast, read these and write what multiplies values.
    Backward passes over gradients instead, beside what was kept."""
    scores, written = operation.bytes_read, operation.bytes_written
    saved = [tensor for tensor in operation.saved if not tensor.name.endswith(WIDE_PROBABILITIES)]
    kept = sum(tensor.size_bytes for tensor in saved)
    mask = sum(tensor.size_bytes for tensor in saved if tensor.name.endswith(DROPOUT_MASK))
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
    return setup.kernels.softmax_kernel == "steps"


def _steps_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes, forward and backward, of plain torch's softmax and of the kernels around it, one after the other.

    Scale and soft cap; mask, but of images (a sum, with an fp32 mask under autocast, or written into a copy; a
    choice besides, where it chooses); cast to fp32, which fp16 does without, as its kernel reads narrow scores;
    softmax; dropout, in the format of that; cast for the product with values. Backward undoes each, gathers
    gradients of relative positions' biases, and before the softmax's own kernel multiplies weights by their
    gradients in another: ``tmp = grad * output`` of pytorch/pytorch aten/src/ATen/native/cuda/SoftMax.cu,
    softmax_backward_cuda_out; fp16 alone is read as it is by aten/src/ATen/native/SoftMax.cpp, softmax.
    """
    narrow, autocast, scores = setup.precision.activation_bytes, setup.precision.autocast, operation.shape[0]
    wide = FP32_BYTES if autocast or setup.kernels.softmax == "eager" else narrow
    masks = setup.model.causal or setup.model.patches is None  # images have no padding
    by_distance = setup.model.disentangled is not None  # it scales keys instead, and fills its mask in
    fills = (setup.kernels.mask_filled or by_distance) and masks
    masked = wide if autocast and masks and not fills else narrow
    reads_halves = setup.precision.math == "fp16" and not setup.kernels.softmax_written
    read = narrow if masked < wide and reads_halves else wide
    cast, returned = (masked + read) * (read > masked), (narrow + masked) * (masked > narrow)
    chosen, given = 2 * narrow * setup.kernels.mask_chosen, (wide + narrow) * (wide > narrow)
    mask = sum(tensor.elements for tensor in operation.saved if tensor.name.endswith(DROPOUT_MASK))
    dropped = 2 * wide * mask + mask
    besides = sum(tensor.size_bytes for tensor in operation.saved if not tensor.name.endswith(STEPS_KEPT))
    summed = (narrow + masked) * slowed(COMPOSED_PACE, setup.accelerator) * (masks and not fills)
    filled = 2 * narrow * (1 + slowed(Pace(FILLED_PER_CYCLE * 2 * narrow), setup.accelerator)) * fills
    softmax, undone = _core_bytes(setup, read, masked, wide)
    relative = setup.model.positions == "relative" and not operation.name.startswith(CROSS)
    biased = relative * (RELATIVE_PASSES * (FP32_BYTES if autocast else narrow) + (narrow + FP32_BYTES) * autocast)
    scaled = 2 * narrow * (not by_distance)
    capped = [passes * narrow * setup.model.attention_softcap for passes in SOFTCAP_PASSES]
    forward = capped[0] + scaled + summed + filled + chosen + cast + softmax + given
    backward = biased + capped[1] + scaled + returned + filled + chosen + cast
    backward = backward + undone + given
    return scores * forward + dropped + 2 * besides, scores * backward + dropped + besides


def _core_bytes(setup: Setup, read: Number, masked: Number, wide: Number) -> tuple[Number, Number]:
    """Bytes per score, forward and backward, of the softmax itself: of ``read`` bytes each by torch's kernels, or of
    ``masked`` ones in an author's steps, whose exponentials have ``wide``."""
    if not setup.kernels.softmax_written:
        return (read + wide) * slowed(Pace(SOFTMAX_PER_CYCLE * (read + wide)), setup.accelerator), 5 * wide + read
    slower = slowed(COMPOSED_PACE, setup.accelerator)
    forward, backward = (
        slower * (few * masked + many * wide) for few, many in zip(WRITTEN_NARROW, WRITTEN_WIDE, strict=True)
    )
    return forward, backward


def _reduced_bytes(operation: Operation) -> tuple[Number, Number]:
    """A softmax whose kernels end at each reduction: scores are read for their maximum, for the sum of exponentials and
    for the weights; backward the weights and their gradients for a sum of products, and for the scores' gradients."""
    scores, written = operation.bytes_read, operation.bytes_written
    return 3 * scores + written, 4 * scores + written


def composed_softmax(setup: Setup) -> Number:
    """1 where a layout or a dtype is not what the framework's fused softmax asks for, else 0."""
    each = setup.precision.activation_bytes
    return core_attention.composed_softmax(setup.kernels, setup.layout, setup.model.heads, each)


def composed_kernels(setup: Setup) -> tuple[int, int]:
    """Launches of such a softmax beyond that of a fused one, forward and backward."""
    return COMPOSED_WIDE_KERNELS if _wide(setup) else COMPOSED_SOFTMAX_KERNELS


def _wide(setup: Setup) -> bool:
    return setup.precision.activation_bytes >= FP32_BYTES
