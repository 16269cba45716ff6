"""The dense MLP: two matrices, or three with a gate."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.attention import joined
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.linear import Bias, Weights, linear
from distsim.layers.names import DROPOUT_MASK, PREACTIVATION
from distsim.layers.norm import inner_norm
from distsim.layers.tensor_parallel import column_collectives, row_collectives
from distsim.units import FP32_BYTES, MASK_BYTES

# Tensors of the inner width that an activation composed of elementary operations keeps, beside its product.
# gelu_new(x) = 0.5 x (1 + tanh(c (x + 0.044715 x^3))): x, tanh's output, and the two factors of the last product.
# xIELU: its input, a square, an exponential and its difference from the input, and which branch was taken.
# ESM's gelu(x) = 0.5 x (1 + erf(x / 2^0.5)): both factors and the argument of erf.
# quick_gelu(x) = x sigmoid(1.702 x): both factors.
COMPOSED_ACTIVATIONS = {"gelu_new": 4, "gelu_erf": 3, "gelu_fast": 6, "quick_gelu": 2, "xielu": 4}
WITHOUT_POWERS = ("gelu_erf", "quick_gelu")
"""Those that autocast leaves in 16 bits: it takes powers alone to fp32."""
ERF_PASSING = 3
"""Tensors that the backward of a composed erf makes on its way: a square, an exponential, its product."""


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
    return [
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
        *(joined(ctx, f"{name}.residual", down) if name == "mlp" else (down,)),
    ]


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
    """The down projection's input where dropout makes it anew."""
    kept = product(ctx, name, tokens, inner)
    return kept._replace(name=f"{name}.dropped") if ctx.dropout and ctx.model.mlp_dropout else kept


def activation(ctx: Context, name: str, tokens: Number, inner: Number) -> Operation:
    """The activation function, with the product by the gate where there is one."""
    model, act, kernels = ctx.model, ctx.activation, ctx.kernels
    elements = tokens * inner
    before = Tensor(f"{name}{PREACTIVATION}", elements, act, "s b f/t")
    saved: list[Tensor] = []
    if model.gated:
        saved.append(before._replace(elements=2 * elements, shape="s b 2f/t"))
        if kernels.activation != "fused":
            made = FP32_BYTES if _squares_wide(ctx) else act
            saved.append(Tensor(f"{name}.activated", elements * kernels.gate_tensors, made, "s b f/t"))
    elif model.activation == "relu":
        saved.append(product(ctx, name, tokens, inner))  # its backward reads its output, which the next product keeps
    elif model.activation in COMPOSED_ACTIVATIONS and kernels.activation == "eager":
        parts = COMPOSED_ACTIVATIONS[model.activation]
        powers = ctx.precision.autocast and model.activation not in WITHOUT_POWERS
        wide = FP32_BYTES if powers else act  # powers run in fp32 under autocast, and what follows from them
        each = [wide] * (parts - 1) + [act]
        saved += [before._replace(name=f"{name}.intermediate_{i}", bytes_each=size) for i, size in enumerate(each)]
        if model.activation == "xielu":
            saved.append(before._replace(name=f"{name}.branch", bytes_each=1))
    else:
        saved.append(before)
    if _squares_wide(ctx):
        saved.append(before._replace(name=f"{name}.square_input", bytes_each=FP32_BYTES))
    if ctx.dropout and model.mlp_dropout:
        saved.append(Tensor(f"{name}{DROPOUT_MASK}", elements, MASK_BYTES, "s b f/t mask"))
    reads = 2 if model.gated else 1
    passing = ERF_PASSING if model.activation == "gelu_erf" and kernels.activation == "eager" else 0
    return Operation(
        f"{name}.activation",
        "elementwise",
        bytes_read=reads * elements * act,
        bytes_written=elements * act,
        shape=(elements,),
        saved=tuple(saved),
        transient_backward=(
            Tensor(f"{name}.product_gradient", elements, act, "s b f/t"),
            before._replace(name=f"{name}.preactivation_gradient", elements=(reads + passing) * elements),
        ),
        parameters=_learned(model.activation_parameters, name),
        recompute_class="activation",
        role="activation",
    )


def _squares_wide(ctx: Context) -> bool:
    """Whether a squared ReLU is one of fp32: autocast runs powers in it."""
    return ctx.model.activation == "relu2" and ctx.precision.autocast and ctx.kernels.activation == "eager"


def _learned(scalars: int, name: str) -> tuple[Parameter, ...]:
    """Learned scalars of the activation function itself."""
    return (Parameter(f"{name}.activation.weight", scalars, "vector", tensor_parallel=False),) if scalars else ()
