"""Seconds of attention as one kernel, at the share of its best rate that lengths, heads and masks allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.passes import BACKWARD_BYTES
from distsim.formulas.compute import attention_share, causal_fraction, head_share, stream_seconds
from distsim.layers.ledger import Operation

if TYPE_CHECKING:
    from distsim.engine.chip import Chip


def flash_seconds(chip: Chip, operation: Operation) -> tuple[Number, Number]:
    """Forward and backward. A block's edges cost alike whether its queries see half of the keys or all, or those of a
    window: what sees all of as many keys has twice the work for them of what is causal."""
    micro, heads, queries, keys, width, value_width = operation.shape
    local = where(keys < queries, 1, 0)
    block = minimum(chip.attention_block, maximum(queries, keys))
    part = causal_fraction(queries, keys, local, block) if operation.causal else 1.0
    reach = 2 * keys * part - (block if operation.causal else 0)
    taken = sum(one / head_share(one, chip.array, chip.unit_rate, chip.exponentials) for one in (width, value_width))
    depth = (width + value_width) / taken
    reached = chip.rate * attention_share(micro, heads, queries, reach, depth, chip.units, chip.unit_rate)
    moved = stream_seconds(operation.bytes_read + operation.bytes_written, chip.bandwidth)
    before, after = (reached * share for share in chip.attention)
    forward = maximum(operation.flops_forward * part / before, moved)
    return forward, maximum(operation.flops_backward * part / after, moved * BACKWARD_BYTES)
