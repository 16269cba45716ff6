"""Seconds of attention as one kernel, at the share of its best rate that lengths, heads and masks allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number, maximum, minimum, nothing, where
from distsim.engine.kernels.plain_costs import BACKWARD_BYTES
from distsim.formulas.compute import attention_share, causal_fraction, head_share, stream_seconds
from distsim.layers.attention_kernel import FLASH_WIDTH, MASK
from distsim.layers.ledger import Operation

if TYPE_CHECKING:
    from distsim.engine.kernels.chip import Chip

LATENT = (192, 128)
"""Heads of DeepSeek's latent attention, which torch gives to cuDNN wherever that runs (pytorch/pytorch
transformers/cuda/sdp_utils.cpp, check_cudnn_tensor_shapes)."""


def flash_seconds(chip: Chip, operation: Operation) -> tuple[Number, Number]:
    """Forward and backward, by the kernel that torch takes where a dense mask rules flash out: it passes over all keys
    then, whatever the mask lets a query see."""
    dense = _dense(operation) if chip.sdpa else 0
    if nothing(dense):
        return _kernel_seconds(chip, operation)
    queries = operation.shape[2]
    times = [_kernel_seconds(chip, operation), _kernel_seconds(chip, operation, queries)]
    return where(dense, times[1][0], times[0][0]), where(dense, times[1][1], times[0][1])


def _dense(operation: Operation) -> Number:
    """1 where a dense mask is beside the scores, else 0."""
    return sum(where(one.elements > 0, 1, 0) for one in operation.saved if one.name == MASK)


def _kernel_seconds(chip: Chip, operation: Operation, masked: Number | None = None) -> tuple[Number, Number]:
    """Forward and backward of one kernel; ``masked`` are all keys of a dense mask."""
    _, _, queries, seen, width, value_width = operation.shape
    keys, causal = (seen, operation.causal) if masked is None else (masked, False)
    sequence = maximum(queries * chip.query_ranks, keys)
    before = keys if chip.chunks else sequence
    block = minimum(chip.attention_block, maximum(queries, keys))
    part = causal_fraction(keys, before, block) if causal else 1.0
    edges = where(keys < before, 2, 1)
    shares = _of_masks(keys * part, edges, block) if causal and chip.masks_edges else (1.0, 1.0)
    reached, steps = _in_blocks(chip, operation, keys * part, block, causal)
    moved = stream_seconds(operation.bytes_read + operation.bytes_written, chip.bandwidth)
    before, after = (reached * share for share in _rates(chip, width, value_width, masked is not None))
    casts: tuple[Number, Number] = (0.0, 0.0)
    if chip.narrow_attention is not None and masked is None and not _too_wide(chip, width, value_width):
        faster = chip.narrow_attention.of(max(width, value_width))
        before, after = before * faster[0], after * faster[1]
        casts = _cast_seconds(chip, operation, chip.narrow_attention.cast_bytes)
    first, second = (part * keys / seen * share for share in shares)
    forward = maximum(operation.flops_forward * first / before, moved)
    backward = maximum(operation.flops_backward * second / after, moved * BACKWARD_BYTES)
    return forward + steps[0] + casts[0], backward + steps[1] + casts[1]


def _of_masks(keys: Number, edges: Number, block: Number) -> tuple[Number, Number]:
    """Time of forward and backward of a kernel that masks only blocks on the diagonal, and at the far edge of a window,
    over that of one that masks all."""
    from distsim.formulas.pallas import UNMASKED, unmasked_time

    return unmasked_time(block, keys, edges, UNMASKED[0]), unmasked_time(block, keys, edges, UNMASKED[1])


def _rates(chip: Chip, width: int, value_width: int, masked: bool) -> tuple[float, float]:
    """Shares of the best rate of products, forward and backward, of the kernel that takes heads so wide."""
    if _too_wide(chip, width, value_width):
        return chip.efficient
    own = max(width, value_width) <= chip.own_width or (width, value_width) == LATENT
    if masked:
        return chip.masked if own else chip.efficient
    return chip.attention if own else chip.portable


def _too_wide(chip: Chip, width: int, value_width: int) -> bool:
    """Whether no flash kernel that torch has takes heads so wide."""
    return chip.sdpa and not chip.array and max(width, value_width) > FLASH_WIDTH


def _in_blocks(
    chip: Chip, operation: Operation, keys: Number, block: Number, causal: bool
) -> tuple[Number, tuple[Number, Number]]:
    """The rate of products in blocks of as many tokens, over the ``keys`` that a query sees in the mean, and seconds of
    the blocks beside them, forward and backward. A block's edges cost alike whether its queries see half of the keys or
    all, or those of a window: what sees all of as many keys has twice the work for them of what is causal. A kernel
    whose blocks are steps of one core's loop has no edges, waves or idle units, but each step costs the same."""
    micro, heads, queries, _, width, value_width = operation.shape
    taken = sum(one / head_share(one, chip.array, chip.unit_rate, chip.exponentials) for one in (width, value_width))
    depth = (width + value_width) / taken
    if chip.grid_kernels:
        from distsim.formulas.pallas import grid_seconds

        each = grid_seconds(micro, heads, queries, keys, block, chip.cores)
        return chip.rate * depth, (each, each * chip.grid_kernels)
    reach = 2 * keys - (block if causal else 0)
    share = attention_share(micro, heads, queries, reach, depth, chip.units, chip.unit_rate)
    return chip.rate * share, (0.0, 0.0)


def _cast_seconds(chip: Chip, operation: Operation, cast_bytes: float) -> tuple[Number, Number]:
    """What quantises queries, keys and values, and in backward the gradient of the output."""
    each = cast_bytes / chip.element_bytes
    inputs, gradient = operation.bytes_read * each, operation.bytes_written * each
    return stream_seconds(inputs, chip.bandwidth), stream_seconds(gradient, chip.bandwidth)
