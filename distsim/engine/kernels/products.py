"""Seconds of a matrix product and of its two gradients, each at the share of the peak that its own shape reaches."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.chip import Chip
from distsim.formulas.compute import product_bytes, product_flops, product_share, roofline_seconds
from distsim.layers.ledger import Operation
from distsim.layers.names import MLP_DOWN, MLP_UP

HALF_ZEROS = {MLP_UP: (1, 2), MLP_DOWN: (0, 2)}
"""Products around ReLU or its square of which an operand is half zeros: gradients of what it was given, and what it
gives (0: forward, 1: input gradient, 2: weight gradient)."""
WITH_ZEROS = ("relu", "relu2")
"""Activations that give them."""


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


def beside_zeros(setup: Setup, chip: Chip, operation: Operation, times: list[Number], narrow: bool) -> list[Number]:
    """Seconds of an operation's products where power holds them back less: zeros take none to multiply."""
    if operation.name not in HALF_ZEROS or setup.model.activation not in WITH_ZEROS:
        return times
    gain = chip.narrow_zeros_gain if narrow else chip.zeros_gain
    return [one / gain if i in HALF_ZEROS[operation.name] else one for i, one in enumerate(times)]
