"""Seconds of attention as one kernel, at the share of its best rate that lengths, heads and masks allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number, maximum, where
from distsim.engine.passes import BACKWARD_BYTES
from distsim.formulas.compute import attention_share, causal_fraction, head_share, stream_seconds
from distsim.layers.ledger import Operation

if TYPE_CHECKING:
    from distsim.engine.chip import Chip

FLASH_BACKWARD_SHARE = 0.8
"""Rate of flash attention's backward over its forward's (Dao 2023, arXiv:2307.08691, figures 5 and 6)."""


def flash_seconds(chip: Chip, operation: Operation) -> tuple[Number, Number]:
    """Forward and backward. A block's edges cost alike whether its queries see half of the keys or all: what all see
    has twice the work for them, unless a window keeps blocks as short as a causal one does."""
    micro, heads, queries, keys, width, value_width = operation.shape
    local = where(keys < queries, 1, 0)
    reach = keys if operation.causal else where(local > 0, keys, 2 * keys)
    taken = width / head_share(width, chip.array) + value_width / head_share(value_width, chip.array)
    depth = (width + value_width) / taken
    share = chip.attention * attention_share(micro, heads, queries, reach, depth, chip.units, chip.unit_rate)
    part = causal_fraction(queries, keys, local, chip.attention_block) if operation.causal else 1.0
    moved = stream_seconds(operation.bytes_read + operation.bytes_written, chip.bandwidth)
    rate = chip.rate * share
    forward = maximum(operation.flops_forward * part / rate, moved)
    return forward, maximum(operation.flops_backward * part / (rate * FLASH_BACKWARD_SHARE), moved * BACKWARD_BYTES)
