"""The dense MLP: two matrices, or three with a gate."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, where
from distsim.layers.attention import joined
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Bias, Weights, linear
from distsim.layers.names import DROPOUT_MASK, PREACTIVATION
from distsim.layers.norm import inner_norm
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.layers.tiles import tiled
from distsim.units import FP8_BYTES, FP32_BYTES, MASK_BYTES


class Composed(NamedTuple):
    """An activation made of elementary operations, in tensors of the inner width."""

    kept: int
    """Tensors that it keeps, beside its product."""
    passing: int
    """Tensors that its backward makes at its highest, beside the gradients of its output and of one factor."""
    powers: bool = False
    """Whether autocast makes it in fp32: it takes powers there, and what follows from them but the first factor."""


# gelu_new(x) = 0.5 x (1 + tanh(c (x + 0.044715 x^3))): x, tanh's output, and the two factors of the last product.
# xIELU: its input, a square, an exponential and its difference from the input, and which branch was taken; backward
# within half a tensor.
# ESM's gelu(x) = 0.5 x (1 + erf(x / 2^0.5)): both factors and the argument of erf; backward a square, an exponential
# and its product.
# gelu_fast(x) = 0.5 x (1 + tanh(c x (1 + 0.044715 x x))): x, 0.044715 x, both factors of c x (...), tanh's output, and
# the two factors of the last product.
# quick_gelu(x) = x sigmoid(1.702 x): both factors.
# Where the last operation is a product its backward makes the gradients of both factors at once.
COMPOSED_ACTIVATIONS = {
    "gelu_new": Composed(4, 1, powers=True),
    "gelu_erf": Composed(3, 3),
    "gelu_fast": Composed(7, 1),
    "quick_gelu": Composed(2, 1),
    "xielu": Composed(4, 2, powers=True),
}


def mlp(ctx: Context, source: Tensor, name: str = "mlp", ffn: int | None = None) -> list[Operation]:
    """Operations of a dense MLP on all tokens; ``source`` is the normalised input."""
    model, layout = ctx.model, ctx.layout
    inner = (model.ffn if ffn is None else ffn) / layout.tp
    tokens = layout.tokens
    outer = inner * (2 if model.gated else 1)
    matrices = 2 if model.gated and not ctx.kernels.gate_up_fused else 1
    product_bytes = FP32_BYTES if model.gated and _squares_wide(ctx) else None
    before, kept = inner_norm(ctx, _dropped(ctx, name, tokens, inner), tokens, inner, product_bytes)
    down = linear(
        ctx,
        f"{name}.down",
        tokens,
        inner,
        model.hidden,
        kept,
        bias=(model.mlp_bias or model.mlp_output_bias) and Bias(whole=True),
        collectives=row_collectives(ctx),
    )
    rows = [
        linear(
            ctx,
            f"{name}.up",
            tokens,
            model.hidden,
            outer,
            source,
            bias=model.mlp_bias,
            weights=Weights(matrices),
            cast_input=True,
            collectives=column_collectives(ctx, matrices),
        ),
        *_cutoff(ctx, name, tokens * inner),
        activation(ctx, name, tokens, inner),
        *before,
    ]
    if name != "mlp":
        return [*rows, down]
    down, *added = joined(ctx, f"{name}.residual", down)
    rows.append(down)
    return [*(rows if ctx.mlp_tiles is None else tiled(rows, ctx.mlp_tiles)), *added]


def _cutoff(ctx: Context, name: str, elements: Number) -> list[Operation]:
    """Mean and deviation of the gate, and what of it is above a cutoff by these; the gate as it was is kept."""
    if not ctx.model.has_cutoff(ctx.layer):
        return []
    gate = Tensor(f"{name}.uncut", elements, ctx.activation, "s b f/t")
    return [
        Operation(
            f"{name}.cutoff", "elementwise", bytes_read=3 * gate.size_bytes, bytes_written=gate.size_bytes,
            shape=(elements,), saved=(gate,), transient_backward=(gate._replace(name=f"{name}.cutoff_gradient"),),
            recompute_class="activation",
        )
    ]  # fmt: skip


def product(ctx: Context, name: str, tokens: Number, inner: Number) -> Tensor:
    """The activation's output: the down projection's input."""
    return Tensor(f"{name}.product", tokens * inner, ctx.precision.kept_input_bytes, "s b f/t")


def _dropped(ctx: Context, name: str, tokens: Number, inner: Number) -> Tensor:
    """The down projection's input where dropout, or casts there and back, make it anew."""
    kept = product(ctx, name, tokens, inner)
    if ctx.kernels.mlp_recast and ctx.precision.autocast:
        return kept._replace(name=f"{name}.recast")
    return kept._replace(name=f"{name}.dropped") if ctx.dropout and ctx.model.mlp_dropout else kept


def activation(ctx: Context, name: str, tokens: Number, inner: Number) -> Operation:
    """The activation function, with the product by the gate where there is one."""
    model, act = ctx.model, ctx.activation
    elements = tokens * inner
    before = Tensor(f"{name}{PREACTIVATION}", elements, act, "s b f/t")
    saved = _kept(ctx, name, tokens, inner, before)
    if _squares_wide(ctx):
        saved.append(before._replace(name=f"{name}.square_input", bytes_each=FP32_BYTES))
    if ctx.dropout and model.mlp_dropout:
        saved.append(Tensor(f"{name}{DROPOUT_MASK}", elements, MASK_BYTES, "s b f/t mask"))
    reads = 2 if model.gated else 1
    return Operation(
        f"{name}.activation",
        "elementwise",
        bytes_read=reads * elements * act,
        bytes_written=elements * act,
        shape=(elements,),
        saved=tuple(saved),
        transient_backward=_passing(ctx, name, before),
        parameters=_learned(model.activation_parameters, name),
        recompute_class="activation",
        role="activation",
    )


def _kept(ctx: Context, name: str, tokens: Number, inner: Number, before: Tensor) -> list[Tensor]:
    """What the activation function and the product by its gate keep."""
    model, kernels = ctx.model, ctx.kernels
    composed = composed_activation(ctx)
    if composed is not None:
        factors = (wide_bytes(ctx, composed), ctx.activation) if model.gated else ()  # which their product keeps
        kept = intermediates(ctx, name, composed, before, factors)
        branch = [before._replace(name=f"{name}.branch", bytes_each=1)] if model.activation == "xielu" else []
        return kept + branch
    if model.gated:
        kept = [as_kept(ctx, before._replace(elements=2 * before.elements, shape="s b 2f/t"))]
        if kernels.activation != "fused":
            made = FP32_BYTES if _squares_wide(ctx) else ctx.activation
            kept.append(Tensor(f"{name}.activated", before.elements * kernels.gate_tensors, made, "s b f/t"))
        return kept
    if model.activation == "relu":
        return [product(ctx, name, tokens, inner)]  # its backward reads its output, which the next product keeps
    return [as_kept(ctx, before)]


def as_kept(ctx: Context, before: Tensor) -> Tensor:
    """A fused activation's input as backward finds it: where it is cast to 8 bits, a tensor of its own."""
    narrow = ctx.kernels.activation == "fused" and ctx.kernels.activation_kept == "fp8"
    return before._replace(bytes_each=FP8_BYTES) if narrow else before


def _passing(ctx: Context, name: str, before: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the activation's output and of what it is made of, alive at once."""
    composed, reads = composed_activation(ctx), 2 if ctx.model.gated else 1
    wide = ctx.activation if composed is None else wide_bytes(ctx, composed)
    # behind a gate the product's own backward is the highest: its factors are gone when the function's runs
    more = 0 if composed is None or ctx.model.gated else composed.passing
    given = before._replace(name=f"{name}.product_gradient", bytes_each=wide)
    if overwrites(ctx):
        return (given,)
    made = before._replace(
        name=f"{name}.preactivation_gradient", elements=(reads + more) * before.elements, bytes_each=wide
    )
    return (given, made) if wide == ctx.activation else (given, made, cast_gradient(ctx, name, before))


def overwrites(ctx: Context) -> bool:
    """Whether the gradients of a gated product's factors stand where the factors did."""
    return ctx.kernels.activation_overwrites and ctx.kernels.activation == "fused" and ctx.model.gated


def cast_gradient(ctx: Context, name: str, before: Tensor) -> Tensor:
    """The gradient of the factor in 16 bits, which the engine casts when the product's backward is over: what that read
    is gone by then where checkpoints without reentrant autograd gave it out."""
    given_out = ctx.kernels.recompute_holds != "output"
    return before._replace(
        name=f"{name}.gradient_cast",
        elements=before.elements * (where(ctx.layout.recompute_layers != 0, 0, 1) if given_out else 1),
    )


def composed_activation(ctx: Context, kind: str = "") -> Composed | None:
    """How the MLP's activation, or one of another kind, is composed, where it is."""
    return COMPOSED_ACTIVATIONS.get(kind or ctx.model.activation) if ctx.kernels.activation == "eager" else None


def intermediates(
    ctx: Context, name: str, composed: Composed, before: Tensor, further: tuple[float, ...] = ()
) -> list[Tensor]:
    """What a composed activation keeps, each as large as what it reads; ``further`` tensors by their bytes per element
    are kept behind it."""
    each = [*[wide_bytes(ctx, composed)] * (composed.kept - 1), ctx.activation, *further]
    return [before._replace(name=f"{name}.intermediate_{i}", bytes_each=size) for i, size in enumerate(each)]


def wide_bytes(ctx: Context, composed: Composed) -> float:
    """Bytes per element of what follows from a power."""
    return FP32_BYTES if ctx.precision.autocast and composed.powers else ctx.activation


def _squares_wide(ctx: Context) -> bool:
    """Whether a squared ReLU is one of fp32: autocast runs powers in it."""
    return ctx.model.activation == "relu2" and ctx.precision.autocast and ctx.kernels.activation == "eager"


def _learned(scalars: int, name: str) -> tuple[Parameter, ...]:
    """Learned scalars of the activation function itself."""
    return (Parameter(f"{name}.activation.weight", scalars, "vector", tensor_parallel=False),) if scalars else ()
