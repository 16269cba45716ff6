"""The choice of experts for each token."""

from __future__ import annotations

from distsim.formulas.compute import product_flops
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.names import ROUTER, SCORE_BIAS
from distsim.specs.experts import Experts
from distsim.specs.kernels import Kernels
from distsim.units import FP32_BYTES, INDEX_BYTES

ROUTER_BYTES = FP32_BYTES  # routing is done in fp32


def routed_bytes(kernels: Kernels, activation: float) -> float:
    """Bytes of a router's weight as it goes to experts, and of an element that ranks which share these add up."""
    return FP32_BYTES if kernels.router_weights == "fp32" else activation


def unquantised(ctx: Context, source: Tensor) -> Tensor:
    """The input as it is, where the block's small products are none of the modules that quantise."""
    return source._replace(bytes_each=ctx.activation) if ctx.kernels.router_keeps_input else source


def router(ctx: Context, source: Tensor) -> Operation:
    """The choice of experts for each token."""
    experts, hidden, tokens = ctx.model.experts, ctx.model.hidden, ctx.sharded_tokens
    assert experts is not None
    flops = product_flops(tokens, hidden, experts.choices)
    return Operation(
        ROUTER, "matmul", flops, 2 * flops, tokens * hidden * ctx.activation, tokens * experts.choices * ROUTER_BYTES,
        (tokens, experts.choices, hidden, 1), _kept(ctx, experts, source), parameters=_weights(experts, hidden),
    )  # fmt: skip


def _weights(experts: Experts, hidden: int) -> tuple[Parameter, ...]:
    """Its matrix, whole on every tensor parallel rank, and biases of its product and of the choice alone."""
    choices = experts.choices
    biases = (("mlp.router.bias", experts.router_bias), (f"{ROUTER}{SCORE_BIAS}", experts.score_bias))
    return (
        Parameter("mlp.router.weight", hidden * choices, "matrix", hidden, choices, 1, "dense", False),
        *(Parameter(name, choices, "vector", tensor_parallel=False) for name, there in biases if there),
    )


def _kept(ctx: Context, experts: Experts, source: Tensor) -> tuple[Tensor, ...]:
    """What it keeps for backward."""
    tokens, k, hidden = ctx.sharded_tokens, experts.per_token, ctx.model.hidden
    saved = [
        *(() if ctx.kernels.router_fp32 else (unquantised(ctx, source),)),
        Tensor("mlp.router.probabilities", tokens * experts.choices, ROUTER_BYTES, "s b E"),
        Tensor("mlp.router.chosen", tokens * k, INDEX_BYTES, "s b k"),
        Tensor("mlp.router.weights", tokens * k, ROUTER_BYTES, "s b k"),
    ]
    if experts.score_softcap:
        saved.append(Tensor("mlp.router.capped", tokens * experts.choices, ROUTER_BYTES, "s b E"))
    if ctx.kernels.router_fp32:
        saved.append(Tensor("mlp.router.input_fp32", tokens * hidden, FP32_BYTES, "s b h fp32"))
        saved.append(Tensor("mlp.router.weight_fp32", hidden * experts.choices, FP32_BYTES, "h E fp32"))
    return tuple(saved)
