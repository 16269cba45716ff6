"""Seconds of a matrix product and of its two gradients, each at the share of the peak that its own shape reaches."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.kernels.chip import Chip
from distsim.formulas.compute import product_bytes, product_flops, product_share, roofline_seconds
from distsim.layers.ledger import Operation


def product_seconds(
    chip: Chip, rate: Number, shape: tuple[Number, ...], flops: Number, moved: Number, spread: Number = 0
) -> list[Number]:
    """Seconds of a product forward, of its input gradient and of its weight gradient."""
    (m, n, k, batch), stream = shape, chip.product_bandwidth
    return [
        roofline_seconds(flops, rate * product_share(*own, batch, chip.units, chip.array, apart), moved, stream)
        for own, apart in (((m, n, k), spread), ((m, k, n), spread), ((k, n, m), 0))
    ]


def linear_seconds(
    chip: Chip, rate: Number, operation: Operation, together: Number, each: float, spread: Number = 0
) -> list[Number]:
    """The same of a row of the ledger with weights, ``together`` of whose matrices run at once. Where separate modules
    read one input (queries, keys and values; gate and up), each is a product of its own, with fewer tiles."""
    m, _, k, batch = operation.shape
    total: list[Number] = [0.0, 0.0, 0.0]
    for width, alike in module_widths(operation):
        flops, moved = product_flops(m, width, k, batch), product_bytes(m, width, k, batch, each)
        one = product_seconds(chip, rate, (m, width, k, together), flops, moved, spread)
        total = [seconds + alike * more for seconds, more in zip(total, one, strict=True)]
    return total


def module_widths(operation: Operation) -> list[tuple[Number, Number]]:
    """Output widths of the modules that a row stands for, and how many have each."""
    whole: list[tuple[Number, Number]] = [(operation.shape[1], 1)]
    if not operation.parameters or operation.parameters[0].group == "expert":
        return whole  # copies of an expert's matrix are the shape's batch
    weight = operation.parameters[0]
    if weight.parts:
        return [(part, 1) for part in weight.parts]
    return [(weight.columns, weight.copies)] if isinstance(weight.copies, int) and weight.copies > 1 else whole
