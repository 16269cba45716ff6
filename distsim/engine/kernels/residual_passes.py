"""What the additions to the residual stream move through memory."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.softmax_passes import plain_torch
from distsim.layers.ledger import Operation
from distsim.layers.names import DROPOUT_MASK
from distsim.units import FP32_BYTES


def residual_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """Bytes, forward and backward, of an addition to the residual stream, with the norm where one kernel has both."""
    return _added_and_normed(setup, operation) if setup.kernels.norm_adds else _added(setup, operation)


def _added(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """The addition to the residual stream, whose backward adds the gradients of both ways; dropout before it, which
    plain torch writes and reads again, and whose backward reads and writes what its gradient is made of."""
    added = operation.bytes_read + operation.bytes_written
    masks = _masks(operation)
    mask, dropped = sum(masks), 2 * operation.bytes_written * bool(masks)
    return added + mask + dropped * int(plain_torch(setup)), added + mask + dropped


def _added_and_normed(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """The same in one kernel with the norm that follows: a branch's result and the stream are read, the stream and the
    normed sum are written; backward reads the gradients of both and the sum, and writes those of stream and branch."""
    elements, narrow = operation.shape[0], setup.precision.activation_bytes
    wide = FP32_BYTES if setup.precision.autocast else narrow
    mask = sum(_masks(operation))
    return elements * 2 * (narrow + wide) + mask, elements * (2 * narrow + 3 * wide) + mask


def _masks(operation: Operation) -> list[Number]:
    """Bytes of what dropout keeps of which elements it left; nothing where there is none."""
    return [tensor.size_bytes for tensor in operation.saved if tensor.name.endswith(DROPOUT_MASK)]
