"""Layers that are two, with experts from the first to behind the second (LongCat-Flash's shortcut, arXiv:2509.01322).

Each half has attention and a dense MLP. The experts read what the first MLP reads, and their output joins the residual
at the end, so that what they exchange can hide behind the second half.
"""

from __future__ import annotations

from collections.abc import Callable

from distsim.layers.attention import residual
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.mlp import mlp
from distsim.layers.moe import moe
from distsim.layers.names import SECOND

Feed = Callable[[Context, Tensor], list[Operation]]


def twice(ctx: Context, half: Callable[[Feed], list[Operation]]) -> list[Operation]:
    """Both halves of a layer; ``half`` makes one around its MLP."""
    return [*half(_experts_and_mlp), *map(_second, half(mlp)), *residual(ctx, "mlp.shortcut")]


def _experts_and_mlp(ctx: Context, source: Tensor) -> list[Operation]:
    """The experts, whose output waits, and the dense MLP beside them."""
    return [*(row for row in moe(ctx, source) if row.name != "mlp.residual"), *mlp(ctx, source)]


def _second(row: Operation) -> Operation:
    """A row of the second half: the same work on tensors and parameters of its own."""

    def own(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor._replace(name=SECOND + tensor.name) for tensor in tensors)

    return row._replace(
        saved=own(row.saved), output=None if row.output is None else own((row.output,))[0],
        transient_forward=own(row.transient_forward), transient_backward=own(row.transient_backward),
        parameters=tuple(one._replace(name=SECOND + one.name) for one in row.parameters),
    )  # fmt: skip
