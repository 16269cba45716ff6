"""A matrix product with weights: the row that qkv, output, MLP and head projections share, and adapters' products."""

from __future__ import annotations

from typing import Literal, NamedTuple

from distsim.arrays import Number
from distsim.formulas.compute import product_flops
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.names import INPUT_CAST
from distsim.layers.norm import casts_narrow


class Size(NamedTuple):
    """``tokens x inner @ inner x outer`` on one rank; with ``copies`` alike matrices (experts) each of them sees its
    share of the tokens."""

    tokens: Number
    inner: Number
    outer: Number
    copies: Number = 1

    @property
    def elements(self) -> Number:
        """Elements of the weight matrices."""
        return self.inner * self.outer * self.copies


class Weights(NamedTuple):
    """What the weights of a product are made of."""

    modules: Number = 1
    """Separate modules that read one input (q, k, v)."""
    parts: tuple[Number, ...] = ()
    """Their output widths, where they are not alike."""
    copies: Number = 1
    """Alike matrices that the rank holds (experts)."""
    group: Literal["dense", "expert"] = "dense"


class Bias(NamedTuple):
    """A bias that is not simply sharded like the product's output."""

    whole: bool = False
    """Every tensor-parallel rank holds all of it: that of a row-parallel product."""
    parts: tuple[Number, ...] = ()
    """Widths of the modules that have one, where not all have."""


ONE = Weights()


def linear(
    ctx: Context,
    name: str,
    tokens: Number,
    inner: Number,
    outer: Number,
    kept_input: Tensor | None,
    *,
    bias: bool | Bias = False,
    weights: Weights = ONE,
    sharded: bool = True,
    cast_input: bool = False,
    collectives: tuple[Collective, ...] = (),
) -> Operation:
    """The row of a product in the activations' format. ``cast_input`` marks an input that autocast finds in fp32 (norms
    give fp32): each module casts it anew, unless a compiler does so once. ``sharded`` is False where every
    tensor-parallel rank holds the weights whole."""
    size, modules = Size(tokens, inner, outer, weights.copies), weights.modules
    weight = Parameter(
        f"{name}.weight", size.elements, "matrix", inner, outer / modules, size.copies * modules, weights.group,
        sharded, weights.parts if modules > 1 else (),
    )  # fmt: skip
    parameters = (weight, _bias(weight, f"{name}.bias", size, bias)) if bias else (weight,)
    if kept_input is not None and cast_input and ctx.precision.autocast and not casts_narrow(ctx):
        casts = 1 if ctx.kernels.casts_once else modules
        kept_input = kept_input._replace(elements=kept_input.elements * casts, name=f"{name}{INPUT_CAST}")
    saved = [] if kept_input is None else [kept_input]
    if kept_input is not None and cast_input and ctx.kernels.input_copies:
        more = (modules - 1) * (ctx.layout.tp > 1) * (1 - ctx.layout.sequence_parallel)  # the first is in its place
        saved.append(kept_input._replace(elements=kept_input.elements * more, name=f"{name}.input_copies"))
    if ctx.precision.autocast:
        saved.append(weight_cast(name, size, ctx.activation))
    return product_row(name, size, ctx.activation, saved, parameters, collectives)


def product_row(
    name: str,
    size: Size,
    each: Number,
    saved: list[Tensor],
    parameters: tuple[Parameter, ...],
    collectives: tuple[Collective, ...],
) -> Operation:
    """The row of a product whose tensors have ``each`` bytes per element; backward it is two products."""
    tokens, inner, outer, copies = size
    flops = product_flops(tokens, inner, outer)
    return Operation(
        name, "matmul", flops, 2 * flops, (tokens * inner + size.elements) * each, tokens * outer * each,
        shape=(tokens / copies, outer, inner, copies),
        saved=tuple(saved),
        output=Tensor(f"{name}.output", tokens * outer, each, "matmul output"),
        transient_backward=(
            Tensor(f"{name}.output_gradient", tokens * outer, each, "matmul output"),
            Tensor(f"{name}.input_gradient", tokens * inner, each, "matmul input"),
        ),
        parameters=parameters,
        collectives=collectives,
    )  # fmt: skip


def weight_cast(name: str, size: Size, each: Number) -> Tensor:
    """The copy of its weights that a product under autocast reads, kept for backward."""
    return Tensor(f"{name}.weight_cast", size.elements, each, "cast weight", weight_copy=True)


def _bias(weight: Parameter, name: str, size: Size, bias: bool | Bias) -> Parameter:
    """The bias that goes with a weight, or with some of its separate modules."""
    whole, parts = bias if isinstance(bias, Bias) else Bias()
    own = weight._replace(
        name=name, elements=size.outer * size.copies, kind="vector", rows=0, columns=0,
        tensor_parallel=weight.tensor_parallel and not whole,
    )  # fmt: skip
    if not parts:
        return own
    own = own._replace(elements=sum(parts))
    return own if weight.copies == 1 else own._replace(copies=len(parts), parts=parts)
