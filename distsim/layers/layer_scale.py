"""Learned scales on what attention and MLP add (Touvron et al. 2021, LayerScale, arXiv:2103.17239)."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.pointwise import pointwise


def scaled(ctx: Context, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """The rows of a layer with a scale before each addition to the residual stream."""
    found: list[Operation] = []
    for one in operations:
        if one.role == "residual":
            branch = one.name.partition(".")[0]
            kept = Tensor(f"{branch}.unscaled", ctx.sharded_tokens * ctx.model.hidden, ctx.activation, "s b h")
            scale = Parameter(f"{branch}.scale", ctx.model.hidden, "vector", tensor_parallel=False)
            found.append(pointwise(f"{branch}.scale", kept)._replace(parameters=(scale,)))
        found.append(one)
    return tuple(found)
