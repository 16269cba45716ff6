"""The highest point of a block's backward pass: tensors still saved, gradients made so far, and what is in transit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from distsim.arrays import Number, maximum, where
from distsim.layers.ledger import NOTHING_AGAIN, Operation, add_saved, distinct_saved, dropped_by, made_again
from distsim.specs.kernels import Kernels


class Gradients(NamedTuple):
    """How parameter gradients come into being during a backward pass, in bytes per element."""

    kept: Number
    """What each finished operation adds to the gradients; 0 where they live in buffers made beforehand."""
    fresh: Number
    """A gradient as autograd hands it over, alive with its operation where it is not itself what is kept."""


class Highest(NamedTuple):
    """Bytes at the highest points of a block's backward pass, behind and before the last but one of its additions to
    the residual stream: what runs first reads the gradient of the block's output, all else a sum that is made of it."""

    last: Number
    """In its last branch (the MLP)."""
    rest: Number = 0

    def beside(self, bytes_all: Number, bytes_rest: Number) -> Number:
        """The highest point where more is there throughout, and more still before the last branch."""
        return maximum(self.last + bytes_all, self.rest + (bytes_all + bytes_rest))


def elements(operation: Operation) -> Number:
    """Parameters of one operation that train."""
    return sum(parameter.elements for parameter in operation.parameters if parameter.trains)


def kept_along(
    operations: tuple[Operation, ...], kernels: Kernels | None = None, *, weight_copies: bool = False
) -> Iterator[Number]:
    """Bytes that each operation and all before it keep, under selective recomputation where ``kernels`` say of what:
    the sums of ``distinct_saved`` of every beginning, each from the one before it."""
    kinds = () if kernels is None else kernels.selective
    sizes: dict[str, Number] = {}
    total, known = 0, NOTHING_AGAIN
    for end, operation in enumerate(operations, 1):
        before, again = len(sizes), made_again(operations[:end], kinds) if kinds else NOTHING_AGAIN
        if again != known:  # of what those before it keep something may be dropped now
            sizes, known = distinct_saved(operations[:end], 1, kernels, weight_copies=weight_copies), again
            total = sum(sizes.values())
        elif add_saved(sizes, operation, kinds, again, weight_copies=weight_copies):
            total = sum(sizes.values())
        else:
            total = sum(itertools.islice(sizes.values(), before, None), total)
        yield total


def remaining_bytes(operations: tuple[Operation, ...], selective: int, kernels: Kernels) -> list[Number]:
    """For each operation the bytes that it and those before it keep, cast weights too, when it runs backward.

    What selective recomputation dropped is there again for the operations that dropped it, and for those that read it.
    """
    whole, casts = list(kept_along(operations)), kept_along(operations, weight_copies=True)
    made = made_again(operations, kernels.selective).made
    again = [
        dropped_by(own, kernels.selective) or any(tensor.name in made for tensor in own.saved) for own in operations
    ]
    left = kept_along(operations, kernels) if selective else whole
    kept = (here if back else less for here, less, back in zip(whole, left, again, strict=True))
    return [one + cast for one, cast in zip(kept, casts, strict=True)]


def backward_peak(
    operations: tuple[Operation, ...],
    gradients: Gradients,
    selective: Number,
    kernels: Kernels,
    stream_bytes: Number = 0,
) -> Highest:
    """Bytes at the highest points while ``operations`` run backward, last one first.

    ``stream_bytes`` is the gradient of the residual stream, which is alive beside a branch's own gradients.
    """
    if not isinstance(selective, int):
        drops = any(dropped_by(operation, kernels.selective) for operation in operations)
        each = [backward_peak(operations, gradients, one, kernels, stream_bytes) for one in ((0, 1) if drops else (0,))]
        return Highest(*(where(selective, high, low) for low, high in zip(*each, strict=True))) if drops else each[0]
    remaining = remaining_bytes(operations, selective, kernels)
    highest: list[Number] = [0, 0]
    done: Number = 0
    added = 0
    for index in range(len(operations) - 1, -1, -1):
        operation = operations[index]
        added += operation.role == "residual"
        own = elements(operation)
        transit = sum(tensor.size_bytes for tensor in operation.transient_backward)
        here = remaining[index] + done + own * gradients.fresh + transit
        highest[added > 1] = maximum(highest[added > 1], here)
        done = done + own * gradients.kept
    return Highest(highest[0] + stream_bytes, highest[1] + stream_bytes * (added > 1))
