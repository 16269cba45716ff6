"""Normalisation over the hidden width, or over heads for queries and keys."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Context, Operation, Parameter, Tensor

STATISTIC_BYTES = 4  # fp32 mean or reciprocal deviation per row, in every fused kernel


def norm(ctx: Context, name: str, rows: Number, width: Number, source: Tensor, *, per_head: bool = False) -> Operation:
    """A layernorm or RMSNorm of ``rows x width``; ``source`` is its input, kept where no other row keeps it."""
    model, kernels = ctx.model, ctx.kernels
    rms = model.norm == "rmsnorm" or per_head
    saved: list[Tensor] = []
    if rms and kernels.norm == "eager":
        saved.append(Tensor(f"{name}.input_fp32", rows * width, 4, "s b h fp32"))
        if model.norm_affine:
            saved.append(Tensor(f"{name}.normalised", rows * width, kernels_normalised_bytes(ctx), "s b h"))
        statistics = 1
    else:
        saved.append(source)
        statistics = 1 if rms else 2
    if kernels.norm_statistics:
        saved.append(Tensor(f"{name}.statistics", rows * statistics, STATISTIC_BYTES, "s b"))
    parameters: list[Parameter] = []
    if model.norm_affine:
        parameters.append(Parameter(f"{name}.weight", width, "vector", tensor_parallel=False))
        if model.norm_has_bias and not per_head:
            parameters.append(Parameter(f"{name}.bias", width, "vector", tensor_parallel=False))
    return Operation(
        name,
        "norm",
        flops_forward=0,
        bytes_read=rows * width * source.bytes_each,
        bytes_written=rows * width * ctx.activation,
        shape=(rows, width),
        saved=tuple(saved),
        parameters=tuple(parameters),
        recompute_class="norm",
    )


def kernels_normalised_bytes(ctx: Context) -> float:
    """Bytes per element of the normalised value that an eager RMSNorm keeps to multiply by its weight."""
    return 4 if ctx.kernels.norm_weight_fp32 or ctx.precision.stream_bytes == 4 else ctx.activation
