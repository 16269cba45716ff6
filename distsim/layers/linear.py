"""A matrix product with weights: the row that qkv, output, MLP and head projections share."""

from __future__ import annotations

from typing import Literal

from distsim.arrays import Number
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor


def linear(
    ctx: Context,
    name: str,
    tokens: Number,
    inner: Number,
    outer: Number,
    kept_input: Tensor | None,
    *,
    bias: bool = False,
    bias_whole: bool = False,
    bias_parts: tuple[Number, ...] = (),
    copies: Number = 1,
    matrices: Number = 1,
    group: Literal["dense", "expert"] = "dense",
    collectives: tuple[Collective, ...] = (),
    sharded: bool = True,
    cast_input: bool = False,
    parts: tuple[Number, ...] = (),
) -> Operation:
    """``tokens x inner @ inner x outer`` on one rank.

    ``copies`` counts alike matrices held by the rank (experts), each of which sees ``tokens / copies`` tokens.
    ``matrices`` counts separate modules read from one input (q, k, v).
    ``cast_input`` marks an input that autocast finds in fp32 (norms give fp32): each module casts it anew.
    ``parts`` are the output widths of the separate modules where they are not alike.
    ``bias_parts`` are the widths of those modules that have a bias, where not all have one.
    ``bias_whole`` marks the bias of a row-parallel product, which every tensor-parallel rank holds.
    """
    elements = inner * outer * copies
    weight = Parameter(
        f"{name}.weight", elements, "matrix", inner, outer / matrices, copies * matrices, group, sharded,
        parts if matrices > 1 else (),
    )  # fmt: skip
    parameters = [weight]
    if bias:
        parameters.append(_bias(weight, f"{name}.bias", outer * copies, sharded and not bias_whole, bias_parts))
    if kept_input is not None and cast_input and ctx.precision.autocast:
        kept_input = kept_input._replace(elements=kept_input.elements * matrices, name=f"{name}.input_cast")
    saved = [] if kept_input is None else [kept_input]
    act = ctx.activation
    if ctx.precision.autocast:
        saved.append(Tensor(f"{name}.weight_cast", elements, act, "cast weight", weight_copy=True))
    flops = 2 * tokens * inner * outer
    return Operation(
        name, "matmul", flops, 2 * flops, (tokens * inner + elements) * act, tokens * outer * act,
        shape=(tokens / copies, outer, inner, copies),
        saved=tuple(saved),
        output=Tensor(f"{name}.output", tokens * outer, act, "matmul output"),
        transient_backward=(
            Tensor(f"{name}.output_gradient", tokens * outer, act, "matmul output"),
            Tensor(f"{name}.input_gradient", tokens * inner, act, "matmul input"),
        ),
        parameters=tuple(parameters),
        collectives=collectives,
    )  # fmt: skip


def _bias(weight: Parameter, name: str, elements: Number, sharded: bool, parts: tuple[Number, ...]) -> Parameter:
    """The bias that goes with a weight, or with some of its separate modules."""
    own = weight._replace(name=name, elements=elements, kind="vector", rows=0, columns=0, tensor_parallel=sharded)
    if not parts:
        return own
    own = own._replace(elements=sum(parts))
    return own if weight.copies == 1 else own._replace(copies=len(parts), parts=parts)
