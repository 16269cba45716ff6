"""Seconds of attention as one kernel, at the share of its best rate that lengths, heads and masks allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.kernels.passes import BACKWARD_BYTES
from distsim.formulas.compute import (
    attention_share,
    causal_fraction,
    head_share,
    stream_seconds,
)
from distsim.layers.attention_kernel import FLASH_WIDTH, MASK
from distsim.layers.ledger import Operation

if TYPE_CHECKING:
    from distsim.engine.kernels.chip import Chip


def flash_seconds(chip: Chip, operation: Operation) -> tuple[Number, Number]:
    """Forward and backward, by torch's memory-efficient kernel where a dense mask rules flash out: it passes over all
    keys then, whatever the mask lets a query see."""
    dense = _dense(operation) if chip.sdpa else 0
    if isinstance(dense, int) and not dense:
        return _kernel_seconds(chip, operation)
    queries = operation.shape[2]
    times = [_kernel_seconds(chip, operation), _kernel_seconds(chip, operation, queries)]
    return where(dense, times[1][0], times[0][0]), where(dense, times[1][1], times[0][1])


def _dense(operation: Operation) -> Number:
    """1 where a dense mask is beside the scores, else 0."""
    return sum(where(one.elements > 0, 1, 0) for one in operation.saved if one.name == MASK)


def _kernel_seconds(chip: Chip, operation: Operation, masked: Number | None = None) -> tuple[Number, Number]:
    """Forward and backward of one kernel; ``masked`` are all keys of a dense mask. A block's edges cost alike whether
    its queries see half of the keys or all, or those of a window: what sees all of as many keys has twice the work for
    them of what is causal. A kernel whose blocks are steps of one core's loop has no edges, waves or idle units, but
    each step costs the same beside its products."""
    micro, heads, queries, seen, width, value_width = operation.shape
    keys, causal = (seen, operation.causal) if masked is None else (masked, False)
    local = where(keys < queries, 1, 0)
    block = minimum(chip.attention_block, maximum(queries, keys))
    part = causal_fraction(queries, keys, local, block) if causal else 1.0
    reach = 2 * keys * part - (block if causal else 0)
    taken = sum(one / head_share(one, chip.array, chip.unit_rate, chip.exponentials) for one in (width, value_width))
    depth = (width + value_width) / taken
    steps: tuple[Number, Number] = (0.0, 0.0)
    if chip.grid_kernels:
        from distsim.formulas.pallas import grid_seconds

        reached = chip.rate * depth
        each = grid_seconds(micro, heads, queries, keys * part, block, chip.cores)
        steps = each, each * chip.grid_kernels
    else:
        reached = chip.rate * attention_share(micro, heads, queries, reach, depth, chip.units, chip.unit_rate)
    moved = stream_seconds(operation.bytes_read + operation.bytes_written, chip.bandwidth)
    wide = chip.sdpa and not chip.array and max(width, value_width) > FLASH_WIDTH
    kernel = chip.efficient if wide or masked is not None else chip.attention
    before, after = (reached * share for share in kernel)
    work = part * keys / seen
    narrow = None if wide or masked is not None else chip.narrow_attention
    casts: tuple[Number, Number] = (0.0, 0.0)
    if narrow is not None:
        before, after = (
            rate * more for rate, more in zip((before, after), narrow.of(max(width, value_width)), strict=True)
        )
        casts = _cast_seconds(chip, operation, narrow.cast_bytes)
    forward = maximum(operation.flops_forward * work / before, moved)
    backward = maximum(operation.flops_backward * work / after, moved * BACKWARD_BYTES)
    return forward + steps[0] + casts[0], backward + steps[1] + casts[1]


def _cast_seconds(chip: Chip, operation: Operation, cast_bytes: float) -> tuple[Number, Number]:
    """What quantises queries, keys and values, and in backward the gradient of the output."""
    each = cast_bytes / chip.element_bytes
    inputs, gradient = operation.bytes_read * each, operation.bytes_written * each
    return stream_seconds(inputs, chip.bandwidth), stream_seconds(gradient, chip.bandwidth)
