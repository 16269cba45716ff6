"""Normalisation over the hidden width, or over heads for queries and keys."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.names import Role
from distsim.units import FP32_BYTES

STATISTIC_BYTES = 4  # fp32 mean or reciprocal deviation per row, in every fused kernel
COMPOSED = ("eager", "written")
"""Layer norms that are composed of elementary operations: one tensor per row is kept, the root of the variance."""
SQUARED = 3
"""Tensors in fp32 that the backward of an eager RMSNorm's square has at its highest beside the gradients of the output
and of the input that it adds to: the mean's gradient, the input to the first power or twice that, their product. The
saved normalised product is gone by then (torch's pow_backward; recorded with torch 2.13,
tests/oracles/tiled_mlp.json)."""


def norm(
    ctx: Context,
    name: str,
    rows: Number,
    width: Number,
    source: Tensor,
    *,
    per_head: bool = False,
    affine: bool = True,
    bias: bool = True,
    groups: Number = 1,
    role: Role = "",
) -> Operation:
    """A layernorm or RMSNorm of ``rows x width``; ``source`` is its input, kept where no other row keeps it.

    ``affine`` is off where this norm has no weights although the model's others have, ``bias`` where it has none.
    ``groups`` of a row are normed by themselves.
    """
    model, kernels = ctx.model, ctx.kernels
    affine = affine and model.norm_affine
    rms = model.norm == "rmsnorm" and not (per_head and model.qk_norm_bias)
    powered = kernels.norm_powers == "all" or (kernels.norm_powers == "unweighted" and not affine)
    statistics = 1 + (powered if rms else kernels.layernorm not in COMPOSED)
    saved = list(_kept(ctx, name, rows * width, width, source, rms, affine))
    if kernels.norm_statistics:
        saved.append(Tensor(f"{name}.statistics", rows * groups * statistics, STATISTIC_BYTES, "s b"))
    biased = model.qk_norm_bias if per_head else model.norm_has_bias and bias
    names = ("weight", "bias")[: affine * (1 + biased)]
    return Operation(
        name,
        "norm",
        flops_forward=0,
        bytes_read=rows * width * source.bytes_each,
        bytes_written=rows * width * ctx.activation,
        shape=(rows, width),
        saved=tuple(saved),
        transient_backward=_gradients(ctx, name, rows * width, source, rms, affine),
        parameters=tuple(Parameter(f"{name}.{one}", width, "vector", tensor_parallel=False) for one in names),
        recompute_class="norm",
        role=role,
    )


def casts_narrow(ctx: Context) -> bool:
    """Whether layernorms cast what autocast gives them, so that products read what they give as it is."""
    return ctx.kernels.layernorm == "narrow" and ctx.precision.autocast


def _gradients(
    ctx: Context, name: str, elements: Number, source: Tensor, rms: bool, affine: bool
) -> tuple[Tensor, ...]:
    """Gradients of output and input; an eager norm's are in fp32, that of its mean of squares in several tensors."""
    eager = ctx.kernels.norm == "eager" if rms else ctx.kernels.layernorm in ("fp32", "eager")
    each = FP32_BYTES if eager else ctx.activation if casts_narrow(ctx) else source.bytes_each
    output = Tensor(f"{name}.output_gradient", elements, each, "s b h")
    both = output, output._replace(name=f"{name}.input_gradient")
    if not (rms and eager):
        return both
    gone = _product_bytes(ctx, source) if affine else 0
    return *both, Tensor(f"{name}.squares", elements, SQUARED * FP32_BYTES - gone, "s b h")


def _product_bytes(ctx: Context, source: Tensor) -> float:
    """Of an element that an eager norm multiplies by the weight."""
    return FP32_BYTES if ctx.kernels.norm_weight_fp32 else source.bytes_each


def _kept(
    ctx: Context, name: str, elements: Number, width: Number, source: Tensor, rms: bool, affine: bool
) -> tuple[Tensor, ...]:
    """The input as the kernel reads it, and the normalised value where an eager norm multiplies it by the weight."""
    kernels = ctx.kernels
    upcast = (
        source if source.bytes_each == FP32_BYTES else Tensor(f"{name}.input_fp32", elements, FP32_BYTES, "s b h fp32")
    )
    plain = kernels.layernorm in ("fused", "narrow") and not ctx.precision.autocast
    if kernels.norm == "fused" if rms else plain:
        return (source,)
    if not rms and kernels.layernorm == "written":
        centred = source._replace(name=f"{name}.centred")
        return (source, centred, source._replace(name=f"{name}.normalised")) if affine else (source, centred)
    if not rms and casts_narrow(ctx):
        return (Tensor(f"{name}.input_cast", elements, ctx.activation, "s b h"),)
    if not rms and kernels.layernorm != "eager":  # on an fp32 copy, as autocast makes it
        return (upcast,)
    if not rms:
        upcast = Tensor(f"{name}.centred_twice", 2 * elements, FP32_BYTES, "s b h fp32")
    if not affine:
        return (upcast,)
    product = Tensor(f"{name}.normalised", elements, _product_bytes(ctx, source), "s b h")
    if kernels.norm_keeps_input and rms:
        return upcast, source, product
    if kernels.norm_weight_copy:
        return upcast, product, Tensor(f"{name}.weight_fp32", width, FP32_BYTES, "h fp32")
    return upcast, product


def inner_norm(
    ctx: Context, kept: Tensor, rows: Number, width: Number, source_bytes: float | None = None
) -> tuple[list[Operation], Tensor]:
    """The norm of what an output projection reads, where the model has one, and what the projection then keeps."""
    if not ctx.model.inner_norms:
        return [], kept
    name = kept.name.rpartition(".")[0]
    source = kept._replace(bytes_each=source_bytes or ctx.activation)
    made = shared(norm(ctx, f"{name}.inner_norm", rows, width, source))
    return [made], kept._replace(name=f"{name}.normed", elements=rows * width)


def shared(made: Operation) -> Operation:
    """A norm whose width, and with it its weights, tensor-parallel ranks share."""
    return made._replace(parameters=tuple(one._replace(tensor_parallel=True) for one in made.parameters))
