"""Mixture of experts: router, dispatch, grouped expert MLPs, combine, and shared experts."""

from __future__ import annotations

from typing import Literal

from distsim.arrays import Number
from distsim.formulas.compute import product_flops
from distsim.layers import capacity
from distsim.layers.attention import residual
from distsim.layers.expert_group import both_ways, expert_width, group_rows, held_by_group
from distsim.layers.expert_slices import summed_slices
from distsim.layers.ledger import Collective, Context, Operation, Parameter, Tensor
from distsim.layers.linear import Weights, linear
from distsim.layers.mlp import as_kept, cast_gradient, mlp, overwrites
from distsim.layers.names import COMBINE, DISPATCH, EXPERT_ACTIVATION, EXPERTS, IDLE, PREACTIVATION
from distsim.layers.norm import norm
from distsim.layers.router import ROUTER_BYTES, routed_bytes, router, unquantised
from distsim.layers.tensor_parallel import column_collectives, row_collectives, sequence_gathers
from distsim.units import FP32_BYTES, INDEX_BYTES, MASK_BYTES

ROW_BYTES = 4
"""Fused permutes count rows in 32 bits."""
INDEXED_GRADIENTS = 3
"""Tensors of all copies of tokens that plain torch has while it puts gradients in the experts' order, and while it
multiplies these by routers' weights and by outputs."""


def routed_tokens(ctx: Context) -> Number:
    """Token copies that the experts of one rank compute, when the router is balanced or every expert has every token.

    Each rank sends its tokens (sharded by tp) to ``per_token`` experts over ep; the etp ranks of an expert all see
    each other's tokens. Expert parallelism moves tokens but does not divide their number.
    """
    experts, layout = ctx.model.experts, ctx.layout
    assert experts is not None
    if ctx.kernels.expert_tokens == "all":
        copies: Number = experts.count
    else:
        copies = experts.working_per_token * capacity.slots_per_token(ctx)
    return layout.tokens / layout.tp * layout.etp * copies


def moe(ctx: Context, source: Tensor) -> list[Operation]:
    """Operations of one MoE block; ``source`` is the normalised input."""
    experts = ctx.model.experts
    assert experts is not None
    shared = mlp(ctx, source, "mlp.shared", experts.shared_ffn) if experts.shared else []
    if experts.shared_gate:
        shared.append(_shared_gate(ctx, source))
    routed = expert_operations(ctx)
    if experts.latent is not None:
        entering = [_latent(ctx, "latent_in", source), *_latent_norm(ctx, "latent", ctx.sharded_tokens)]
        routed = [*entering, *routed, _latent(ctx, "latent_out", None)]
    return [router(ctx, source), *routed, *shared, *residual(ctx, "mlp.residual")]


def _latent(ctx: Context, name: str, source: Tensor | None) -> Operation:
    """The projection to the routed experts' width, or back; whole on each tensor-parallel rank."""
    hidden, width, tokens = ctx.model.hidden, expert_width(ctx), ctx.sharded_tokens
    kept = source or Tensor("mlp.experts.combined", tokens * width, ctx.precision.kept_input_bytes, "s b l")
    inner, outer = (hidden, width) if source is not None else (width, hidden)
    return linear(ctx, f"mlp.{name}", tokens, inner, outer, kept, sharded=False)


def _latent_norm(ctx: Context, name: str, rows: Number) -> list[Operation]:
    """A norm at the routed experts' width, where they have one."""
    experts, width = ctx.model.experts, expert_width(ctx)
    if experts is None or not experts.latent_norms:
        return []
    return [
        norm(ctx, f"mlp.{name}_norm", rows, width, Tensor(f"mlp.{name}_raw", rows * width, ctx.activation, "s b l"))
    ]


def expert_operations(ctx: Context) -> list[Operation]:
    """Sending tokens to experts, their MLPs, and sending what they give back."""
    model, layout, experts = ctx.model, ctx.layout, ctx.model.experts
    assert experts is not None
    routed = routed_tokens(ctx)
    rows = routed * capacity.buffer_share(ctx)
    local = experts.count / layout.ep
    inner = experts.ffn / layout.etp
    act, kept, width = ctx.activation, ctx.precision.kept_input_bytes, expert_width(ctx)
    dispatched = Tensor("mlp.experts.input", rows * width, kept, "k s b h")
    down_input = Tensor("mlp.experts.product", rows * inner, kept, "k s b f")
    sent = routed / local if ctx.kernels.expert_tokens == "all" else routed  # once to a rank, for all of its experts
    exchange = sent / layout.etp * width * act * (layout.ep > 1)
    gather = routed * width * (layout.etp > 1)
    outer = inner * (2 if model.gated else 1)
    weights = Weights(copies=local, group="expert")
    up = linear(ctx, EXPERTS[0], routed, width, outer, dispatched, bias=experts.bias, weights=weights)
    down = linear(ctx, EXPERTS[1], routed, inner, width, down_input, bias=experts.bias, weights=weights)
    if ctx.kernels.expert_slices:
        down = summed_slices(ctx, up, down)
    operations = [
        *capacity.masks(ctx),
        _dispatch(ctx, rows, _exchanges(ctx, exchange, gather, way="in")),
        *capacity.at_the_busiest(
            ctx,
            [
                _with_idle(up, experts.idle / layout.ep) if experts.idle else up,
                _expert_activation(ctx, rows, inner),
                down,
            ],
        ),
        *_latent_norm(ctx, "experts.output", rows),
        _combine(ctx, rows, _exchanges(ctx, exchange, gather, way="out")),
    ]
    return capacity.with_room(ctx, operations)


def _exchanges(ctx: Context, exchange: Number, gather: Number, way: Literal["in", "out"]) -> tuple[Collective, ...]:
    """All-to-alls of expert parallel ranks, and what ranks that share experts do each way."""
    each = ctx.activation if way == "in" else routed_bytes(ctx.kernels, ctx.activation)
    forward, backward = ("all_gather", "reduce_scatter") if way == "in" else ("reduce_scatter", "all_gather")
    if ctx.kernels.expert_gathers == "group":
        size = group_rows(ctx) * expert_width(ctx) * each
        return both_ways(Collective(forward, "experts", size, "forward", bytes_each=each), backward)
    sent = tuple(Collective("all_to_all", "ep", exchange, phase) for phase in ("forward", "backward"))
    if ctx.kernels.expert_gathers == "tokens":
        return sent + _region(ctx, way)
    return sent + both_ways(Collective(forward, "etp", gather * each, "forward", bytes_each=each), backward)


def _region(ctx: Context, way: Literal["in", "out"]) -> tuple[Collective, ...]:
    """The edges of a region around the block, in which each rank has a part of every expert: tokens are gathered for
    shared experts too, whose own products tell of it."""
    experts, width, shared = ctx.model.experts, expert_width(ctx), ctx.layout.etp > 1
    assert experts is not None
    if way == "out":
        edges = row_collectives(ctx, width)
    else:
        edges = () if experts.shared else column_collectives(ctx, narrow=False, width=width)
        edges += sequence_gathers(ctx, experts.per_token)[1:]  # gradients of routers' weights
    return tuple(one._replace(bytes_logical=one.bytes_logical * shared) for one in edges)


def _dispatch(ctx: Context, routed: Number, collectives: tuple[Collective, ...]) -> Operation:
    """Tokens in the order of experts, at the ranks that have these."""
    width, act = expert_width(ctx), ctx.activation
    if capacity.one_hot(ctx):
        return capacity.into_slots(ctx, width, collectives)
    return Operation(
        DISPATCH,
        "copy",
        bytes_read=routed * width * act,
        bytes_written=routed * width * act,
        shape=(routed, width),
        saved=_sent(ctx, routed),
        transient_forward=held_by_group(ctx, "gathered"),
        transient_backward=held_by_group(ctx, "gathered_gradient"),
        collectives=collectives,
    )


def _with_idle(up: Operation, idle: Number) -> Operation:
    """The first product with the weights of so many experts that nothing reads."""
    weight = up.parameters[0]
    unread = weight._replace(name=weight.name + IDLE, elements=weight.elements / weight.copies * idle, copies=idle)
    return up._replace(parameters=(*up.parameters, unread))


def _sent(ctx: Context, routed: Number) -> tuple[Tensor, ...]:
    """What sending tokens keeps: indices, and where routers' weights multiply what is sent, both factors."""
    factors: tuple[Tensor, ...] = ()
    if ctx.kernels.expert_scale == "inputs":
        act = ctx.activation
        wide = FP32_BYTES if ctx.precision.autocast else act  # as the norm gives what is copied
        copies = Tensor("mlp.experts.copies", routed * expert_width(ctx), wide, "k s b h")
        factors = (copies, Tensor("mlp.experts.scale", routed, act, "k s b"))
    return (*_indices(ctx, routed), *factors)


def _indices(ctx: Context, routed: Number) -> tuple[Tensor, ...]:
    """Sort order, its inverse and the token of each copy, as plain torch keeps them; fused permutes keep one map.

    Where every expert has every token, nothing is put in order.
    """
    if ctx.kernels.expert_tokens == "all":
        return ()
    row_map = Tensor("mlp.experts.row_map", routed, ROW_BYTES, "k s b")
    if ctx.kernels.expert_map != "copies" and ctx.kernels.expert_order == "around" and ctx.capacity is None:
        return _of_each_expert(ctx, row_map)
    if ctx.kernels.moe != "eager":
        return (row_map,)
    return tuple(
        Tensor(f"mlp.experts.index_{which}", routed, INDEX_BYTES, "k s b") for which in ("order", "inverse", "token")
    )


def _of_each_expert(ctx: Context, row_map: Tensor) -> tuple[Tensor, ...]:
    """Masks with routers' weights, or places, of each token and expert; and what is of each copy besides."""
    experts = ctx.model.experts
    assert experts is not None
    scores = ctx.sharded_tokens * experts.count
    if ctx.kernels.expert_map == "places":
        places = Tensor("mlp.experts.places", 2 * scores, ROW_BYTES, "s b 2E")
        return (places, row_map._replace(elements=2 * row_map.elements))
    masks = Tensor("mlp.experts.masks", scores, MASK_BYTES + routed_bytes(ctx.kernels, ctx.activation), "s b E")
    return (masks, row_map._replace(bytes_each=INDEX_BYTES))


def _expert_activation(ctx: Context, routed: Number, inner: Number) -> Operation:
    act, elements, model = ctx.activation, routed * inner, ctx.model
    before = Tensor(f"mlp.experts{PREACTIVATION}", elements * (2 if model.gated else 1), act, "k s b 2f")
    saved = [as_kept(ctx, before)]
    if ctx.kernels.activation != "fused" and model.gated:
        own = ctx.kernels.expert_gate_tensors
        beside = ctx.kernels.gate_tensors if own is None else own
        saved.append(Tensor("mlp.experts.activated", elements * beside, act, "k s b f"))
    if ctx.kernels.expert_scale == "before" and (ctx.kernels.activation != "fused" or not model.gated):
        saved.append(Tensor("mlp.experts.unscaled", elements, act, "k s b f"))  # gated, one kernel makes it again
    return Operation(
        EXPERT_ACTIVATION,
        "elementwise",
        bytes_read=2 * elements * act,
        bytes_written=elements * act,
        shape=(elements,),
        saved=tuple(saved),
        transient_backward=(
            Tensor("mlp.experts.product_gradient", elements, act, "k s b f"),
            *(() if overwrites(ctx) else (before._replace(name="mlp.experts.preactivation_gradient"),)),
        ),
        recompute_class="activation",
        role="activation",
    )


def _combine(ctx: Context, routed: Number, collectives: tuple[Collective, ...]) -> Operation:
    experts, hidden, act = ctx.model.experts, expert_width(ctx), ctx.activation
    assert experts is not None
    # Plain torch copies and scales also what comes back as it went.
    copies = routed * (experts.choices / experts.count if ctx.kernels.moe == "eager" else 1)
    output = Tensor("mlp.experts.output", copies / ctx.layout.etp * hidden, act, "k s b h")
    if capacity.one_hot(ctx):
        return capacity.out_of_slots(ctx, hidden, output, collectives)
    saved: list[Tensor] = []
    if ctx.kernels.expert_scale != "inputs":
        saved.append(Tensor("mlp.experts.scale", copies, ROUTER_BYTES, "k s b"))
    if ctx.kernels.expert_scale == "after":
        saved.append(output._replace(bytes_each=FP32_BYTES) if ctx.kernels.expert_output_wide else output)
    if ctx.kernels.moe == "eager" and ctx.kernels.expert_products != "grouped":
        saved.append(output._replace(name="mlp.experts.added"))  # each expert's share of the sum is kept by index_add
    return Operation(
        COMBINE,
        "elementwise",
        bytes_read=routed * hidden * act,
        bytes_written=ctx.sharded_tokens * hidden * act,
        shape=(routed, hidden),
        saved=tuple(saved),
        transient_forward=held_by_group(ctx, "summed"),
        transient_backward=(
            *held_by_group(ctx, "summed_gradient"),
            *_ordered_gradients(ctx, output._replace(name="mlp.experts.output_gradient")),
        ),
        collectives=collectives,
    )


def _ordered_gradients(ctx: Context, gradient: Tensor) -> tuple[Tensor, ...]:
    """Gradients of all copies of tokens: one; in plain torch three, as wide as their product by routers' weights,
    and where only the weights are wide one more, which the engine casts."""
    after = ctx.kernels.expert_output_wide and ctx.kernels.expert_scale == "after"
    if ctx.kernels.expert_tokens == "all" or not (after or ctx.kernels.moe == "eager"):
        return (gradient,)
    experts = ctx.model.experts
    wide = after or ctx.kernels.router_fp32 or (experts is not None and experts.beside_mlp is True)
    each = (gradient._replace(bytes_each=FP32_BYTES) if wide else gradient,) * INDEXED_GRADIENTS
    promoted = wide and not after and ctx.activation < FP32_BYTES  # narrow outputs by wide weights, without a cast
    return (*each, cast_gradient(ctx, "mlp.experts.output", gradient)) if promoted else each


def _shared_gate(ctx: Context, source: Tensor) -> Operation:
    hidden, tokens = ctx.model.hidden, ctx.sharded_tokens
    flops = product_flops(tokens, 1, hidden)
    gate = Tensor("mlp.shared.gate", tokens, ctx.activation, "s b 1")
    output = Tensor("mlp.shared.output", tokens * hidden, ctx.activation, "s b h")
    return Operation(
        "mlp.shared.gate",
        "matmul",
        flops,
        2 * flops,
        tokens * hidden * ctx.activation,
        tokens * ctx.activation,
        (tokens, 1, hidden, 1),
        (unquantised(ctx, source), gate, output),
        parameters=(Parameter("mlp.shared.gate.weight", hidden, "matrix", hidden, 1, 1, "dense", False),),
    )
