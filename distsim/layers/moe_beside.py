"""Experts beside a dense MLP, both of which every token passes: the mixtures of Gemma 4 and Arctic."""

from __future__ import annotations

from distsim.layers.attention import residual
from distsim.layers.ledger import Context, Operation, Parameter, Tensor
from distsim.layers.mlp import mlp
from distsim.layers.moe import expert_operations
from distsim.layers.names import LAYER_INPUT
from distsim.layers.norm import norm
from distsim.layers.router import router


def experts_beside_mlp(ctx: Context, source: Tensor) -> list[Operation]:
    """The MLP reads ``source``; router and experts read norms of their own of what that norm has read."""
    model, rows, kept = ctx.model, ctx.sharded_tokens, ctx.precision.kept_input_bytes
    stream = rows * model.hidden
    middle = Tensor("layer.middle", stream, ctx.precision.stream_bytes, "s b h")
    given = [Tensor(f"mlp.{which}.branch", stream, kept, "s b h") for which in ("shared", "experts")]
    return [
        *mlp(ctx, source, "mlp.shared", model.ffn),
        norm(ctx, "mlp.shared.post_norm", rows, model.hidden, given[0]),
        *_routing(ctx, middle),
        norm(ctx, "mlp.experts.norm", rows, model.hidden, middle),
        *expert_operations(ctx),
        norm(ctx, "mlp.experts.post_norm", rows, model.hidden, given[1]),
        *residual(ctx, "mlp.residual"),
    ]


def experts_beside_attention(ctx: Context, source: Tensor) -> list[Operation]:
    """The MLP reads ``source``, router and experts a norm of the layer's input; both join the residual."""
    model, rows, kept = ctx.model, ctx.sharded_tokens, ctx.precision.kept_input_bytes
    stream = rows * model.hidden
    entered = Tensor(LAYER_INPUT, stream, ctx.precision.stream_bytes, "s b h")
    return [
        *mlp(ctx, source, "mlp.shared", model.ffn),
        *residual(ctx, "mlp.shared.residual"),
        norm(ctx, "mlp.router.norm", rows, model.hidden, entered),
        router(ctx, Tensor("mlp.router.input", stream, kept, "s b h")),
        *expert_operations(ctx),
        *residual(ctx, "mlp.residual"),
    ]


def _routing(ctx: Context, middle: Tensor) -> list[Operation]:
    """A norm without weights, a scale per channel, the router, and a scale per expert on the weights it gives."""
    model, experts, rows = ctx.model, ctx.model.experts, ctx.sharded_tokens
    assert experts is not None
    before = norm(ctx, "mlp.router.norm", rows, model.hidden, middle, affine=False)
    kept = Tensor("mlp.router.input", rows * model.hidden, ctx.precision.kept_input_bytes, "s b h")
    if ctx.kernels.norm == "eager":
        before = before._replace(saved=(*before.saved, kept._replace(name="mlp.router.normalised")))
    choice = router(ctx, kept)
    scales = tuple(
        Parameter(f"mlp.router.{name}", size, "vector", tensor_parallel=False)
        for name, size in (("scale", model.hidden), ("expert_scale", experts.count))
    )
    return [before, choice._replace(parameters=(*choice.parameters, *scales))]
