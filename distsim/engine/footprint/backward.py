"""The highest point of a block's backward pass: tensors still saved, gradients made so far, and what is in transit."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, maximum
from distsim.layers.ledger import Operation, distinct_saved, dropped_by, made_again
from distsim.specs.kernels import Kernels


class Gradients(NamedTuple):
    """How parameter gradients come into being during a backward pass, in bytes per element."""

    kept: Number
    """What each finished operation adds to the gradients; 0 where they live in buffers made beforehand."""
    fresh: Number
    """A gradient as autograd hands it over, alive with its operation where it is not itself what is kept."""


def elements(operation: Operation) -> Number:
    """Parameters of one operation that train."""
    return sum(parameter.elements for parameter in operation.parameters if parameter.trains)


def remaining_bytes(operations: tuple[Operation, ...], until: int, selective: Number, kernels: Kernels) -> Number:
    """Bytes that operations up to and including ``until`` keep, cast weights too, when it runs backward.

    What selective recomputation dropped is there again for the operations that dropped it, and for those that read it.
    """
    ahead, own = operations[: until + 1], operations[until]
    made = made_again(operations, kernels.selective).made
    again = dropped_by(own, kernels.selective) or any(tensor.name in made for tensor in own.saved)
    kept = distinct_saved(ahead) if again else distinct_saved(ahead, selective, kernels)
    return sum(kept.values()) + sum(distinct_saved(ahead, weight_copies=True).values())


def backward_peak(
    operations: tuple[Operation, ...],
    gradients: Gradients,
    selective: Number,
    kernels: Kernels,
    stream_bytes: Number = 0,
) -> Number:
    """Bytes at the highest point while ``operations`` run backward, last one first.

    ``stream_bytes`` is the gradient of the residual stream, which is alive beside a branch's own gradients.
    """
    highest: Number = 0
    done: Number = 0
    for index in range(len(operations) - 1, -1, -1):
        operation = operations[index]
        own = elements(operation)
        transit = sum(tensor.size_bytes for tensor in operation.transient_backward)
        here = remaining_bytes(operations, index, selective, kernels) + done + own * gradients.fresh + transit
        highest = maximum(highest, here)
        done = done + own * gradients.kept
    return highest + stream_bytes
