"""What gradients of weights read, which stays from a micro-batch's input gradient until its weight gradient where a
pipeline splits its backward passes (Qi et al. 2023, arXiv:2401.10241, table 1).

Inputs of products and gradients of their outputs; all else that forward kept, attention's and norms' own tensors among
it, goes with the input gradient. A product whose weights are frozen reads nothing later.
"""

from __future__ import annotations

from collections.abc import Iterable

from distsim.arrays import Number
from distsim.layers.ledger import Operation, Tensor, saved_bytes

WIDE_INPUT = ".input_fp32"
"""Ends the name of an input that a product casts to fp32 and reads instead of its own."""
COPY = "_copy"
"""Ends the name of an input of some layouts that is in others what it is a copy of, which then follows it."""


def later_bytes(operations: Iterable[Operation], *, keeps_graph: bool = False) -> Number:
    """Bytes of one micro-batch that wait for weight gradients, those that recomputation made again too; with
    ``keeps_graph`` all that forward kept waits beside the gradients of outputs."""
    return saved_bytes(later_rows(operations, keeps_graph=keeps_graph))


def later_rows(operations: Iterable[Operation], *, keeps_graph: bool = False) -> list[Operation]:
    """The same rows with what waits instead of what they save."""
    return [_later(operation, keeps_graph) for operation in operations]


def _later(operation: Operation, keeps_graph: bool) -> Operation:
    """The row with what waits instead of what it saves."""
    read = _read(operation)
    kept = operation.saved if keeps_graph else read
    return operation._replace(saved=(*kept, *((_output_gradient(operation),) if read else ())))


def _read(operation: Operation) -> tuple[Tensor, ...]:
    """The input of a product whose weights have a gradient; none where the loss has made it with its own."""
    if operation.kind != "matmul" or not operation.weight_gradient:
        return ()
    if isinstance(operation.bytes_written, int) and operation.bytes_written == 0:  # no weights: a product by a mask
        return ()
    kept = tuple(tensor for tensor in operation.saved if not tensor.weight_copy)
    wide = tuple(tensor for tensor in kept if tensor.name.endswith(WIDE_INPUT))
    return wide or kept[: 1 + any(one.name + COPY == kept[0].name for one in kept[1:2])]


def _output_gradient(operation: Operation) -> Tensor:
    """As large as the output."""
    return Tensor(f"{operation.name}.output_gradient", operation.bytes_written, 1, "matmul output")
