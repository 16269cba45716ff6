"""Ranks that have parts of the same experts, of which each may take the tokens of all (Megatron's allgather
dispatcher)."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Collective, Context, Tensor


def both_ways(one: Collective, backward: str) -> tuple[Collective, Collective]:
    """An exchange and that of its gradients."""
    return one, one._replace(op=backward, phase="backward")


def expert_width(ctx: Context) -> int:
    """Width of what routed experts read and write."""
    experts = ctx.model.experts
    assert experts is not None
    return experts.latent or ctx.model.hidden


def group_rows(ctx: Context) -> Number:
    """Tokens of all of them; none where one rank has all experts."""
    ranks = ctx.layout.ep * ctx.layout.etp
    return ctx.layout.tokens / ctx.layout.tp * ranks * (ranks > 1)


def held_by_group(ctx: Context, name: str) -> tuple[Tensor, ...]:
    """These tokens, or what is added up for them, as long as their exchange and order take."""
    if ctx.kernels.expert_gathers != "group":
        return ()
    return (Tensor(f"mlp.experts.{name}", group_rows(ctx) * expert_width(ctx), ctx.activation, "s b h"),)
