"""Experts with room for a fixed number of tokens: what puts tokens into slots and takes them out again.

A capacity factor gives each expert as many slots as the mean of its tokens times the factor. What is beyond is dropped,
slots that stay empty are computed and sent like full ones. Where tokens come to their slots by a product with a one-hot
mask over tokens, experts and slots (GShard, MaxText's dense matmul), that product grows with the square of a group's
tokens: each token meets every slot of its group, which is its own sequence unless the model groups tokens otherwise.
"""

from __future__ import annotations

from distsim.arrays import Number, maximum, where
from distsim.formulas.compute import product_flops
from distsim.layers.ledger import Collective, Context, Operation, Tensor
from distsim.layers.names import COMBINE, DISPATCH, SLOT_MASKS
from distsim.units import FP32_BYTES, MASK_BYTES


def slots_per_token(ctx: Context) -> Number:
    """What experts compute over what the router sends them: the capacity factor, where there is one."""
    return 1 if ctx.capacity is None else ctx.capacity


def buffer_share(ctx: Context) -> Number:
    """Rows of the buffers around experts over the tokens that are in them. XLA's shapes are fixed, so that without a
    capacity a rank has room for all tokens of all ranks that share its experts, and passes over all of it."""
    worst = ctx.kernels.expert_buffers == "worst" and ctx.capacity is None and ctx.kernels.expert_tokens == "chosen"
    return ctx.layout.ep if worst else 1


def has_fixed_room(ctx: Context) -> bool:
    """Whether a graph of whole steps fixes rows for experts' tensors."""
    return ctx.kernels.graphs == "iteration" and ctx.capacity is None and ctx.kernels.expert_room != 1


def at_the_busiest(ctx: Context, operations: list[Operation]) -> list[Operation]:
    """The experts' own operations with the tensors of the busiest rank, where a job states how far it is from the mean
    and no room is fixed. Only memory grows: engine/kernels/expert_load.py has what it does to time."""
    if ctx.expert_imbalance is None or has_fixed_room(ctx):
        return operations
    share = where(ctx.layout.ep > 1, ctx.expert_imbalance, 1.0)
    return [_with_rows(one, share, share) for one in operations]


def with_room(ctx: Context, operations: list[Operation]) -> list[Operation]:
    """The same operations with the rows that a graph of whole steps fixes for experts' tensors before any token is
    counted. Kernels pass over the tokens alone, so that only memory grows; quantised tensors that are kept are copied
    to pages, which need less room than the tensors (NVIDIA/Megatron-LM core/transformer/moe, README of paged stash)."""
    room = ctx.kernels.expert_room
    if not has_fixed_room(ctx):
        return operations
    kept = ctx.kernels.expert_pages if ctx.precision.scales_blocks else room
    return [_with_rows(one, kept, room) for one in operations]


def _with_rows(one: Operation, kept: Number, passing: Number) -> Operation:
    """An operation whose kept and passing tensors have so many times their rows."""
    return one._replace(
        saved=_wider(one.saved, kept),
        transient_forward=_wider(one.transient_forward, passing),
        transient_backward=_wider(one.transient_backward, passing),
    )


def _wider(tensors: tuple[Tensor, ...], share: Number) -> tuple[Tensor, ...]:
    """Tensors with so many times their rows; cast weights have none."""
    return tuple(one if one.weight_copy else one._replace(elements=one.elements * share) for one in tensors)


def one_hot(ctx: Context) -> bool:
    """Whether tokens come to their slots, and back, by products with masks."""
    return ctx.capacity is not None and ctx.kernels.expert_slots == "one-hot"


def _groups(ctx: Context) -> Number:
    """Groups of a micro-batch's tokens, each with slots of its own; one where the micro-batch has less than a group."""
    layout, experts = ctx.layout, ctx.model.experts
    assert experts is not None
    if ctx.kernels.expert_slot_groups == "micro_batch":
        return 1
    if experts.group_tokens is None:
        return layout.micro_batch
    return maximum(layout.micro_batch * layout.seq / experts.group_tokens, 1)


def _slots(ctx: Context) -> Number:
    """Slots of all experts for the tokens of one group."""
    experts, tokens = ctx.model.experts, ctx.layout.micro_batch * ctx.layout.seq / _groups(ctx)
    assert experts is not None
    return tokens * experts.working_per_token * slots_per_token(ctx)


def _mask(ctx: Context, name: str, bytes_each: Number) -> Tensor:
    return Tensor(f"mlp.experts.{name}", ctx.sharded_tokens * _slots(ctx), bytes_each, "b s E c")


def masks(ctx: Context) -> list[Operation]:
    """The masks of both products, of what the router chose; nothing where one kernel makes them."""
    if not one_hot(ctx) or ctx.kernels.expert_masks == "fused":
        return []
    wide = _mask(ctx, "masks_wide", FP32_BYTES)
    choices = _of_each_choice(ctx, wide)
    return [
        Operation(
            SLOT_MASKS,
            "elementwise",
            bytes_written=wide.elements * (MASK_BYTES + 2 * ctx.activation),
            shape=(wide.elements,),
            transient_forward=(wide, choices),
            transient_backward=(wide,),
            role="slot masks",
        )
    ]


def _of_each_choice(ctx: Context, wide: Tensor) -> Tensor:
    """One mask for each expert of a token, before they are summed."""
    experts = ctx.model.experts
    assert experts is not None
    return wide._replace(name="mlp.experts.masks_of_choices", elements=wide.elements * experts.per_token)


def into_slots(ctx: Context, width: int, collectives: tuple[Collective, ...]) -> Operation:
    """Tokens of each group times the mask: forward and, since the mask has no gradient, one product backward."""
    tokens, slots, batch = ctx.sharded_tokens / _groups(ctx), _slots(ctx), _groups(ctx)
    flops = product_flops(tokens, slots, width, batch)
    return Operation(
        DISPATCH,
        "matmul",
        flops,
        flops,
        shape=(width, slots, tokens, batch),
        saved=(_mask(ctx, "slots", MASK_BYTES),),  # booleans (MaxText, layers/moe.py, generate_masks)
        transient_forward=(_mask(ctx, "slots_wide", ctx.activation),),
        transient_backward=(_mask(ctx, "slots_wide", ctx.activation),),
        collectives=collectives,
        weight_gradient=False,
    )


def out_of_slots(ctx: Context, width: int, output: Tensor, collectives: tuple[Collective, ...]) -> Operation:
    """What experts give times a mask of the routers' weights, which have a gradient: two products backward."""
    tokens, slots, batch = ctx.sharded_tokens / _groups(ctx), _slots(ctx), _groups(ctx)
    flops = product_flops(tokens, slots, width, batch)
    mask = _mask(ctx, "slot_weights", ctx.activation)
    return Operation(
        COMBINE,
        "matmul",
        flops,
        2 * flops,
        shape=(width, tokens, slots, batch),
        saved=(output, mask),
        transient_backward=(
            output._replace(name="mlp.experts.output_gradient"),
            mask._replace(name="mlp.experts.slot_weights_gradient"),
        ),
        collectives=collectives,
    )
