"""The collectives at the edges of a tensor-parallel region (Shoeybi 2019; Korthikanti 2022, section 4.2)."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.layers.ledger import Collective, Context


def boundary_bytes(ctx: Context, bytes_each: Number | None = None, width: Number | None = None) -> Number:
    """The whole ``s b h`` tensor that crosses the edge, or one of another ``width``; zero where tp is 1."""
    layout = ctx.layout
    each = ctx.activation if bytes_each is None else bytes_each
    return layout.tokens * (ctx.model.hidden if width is None else width) * each * (layout.tp > 1)


def gathered_bytes_each(ctx: Context, narrow: bool = True) -> Number:
    """Bytes of an element that is gathered: as its product reads it, where software or recipe quantise it first."""
    if narrow and ctx.kernels.tp_gathers == "quantised":
        return ctx.precision.kept_input_bytes
    return (ctx.precision.exchange_bytes if narrow else 0) or ctx.activation


def column_collectives(
    ctx: Context, matrices: int = 1, narrow: bool = True, width: Number | None = None
) -> tuple[Collective, ...]:
    """Entering a region: all-gather under sequence parallelism (again in backward), else an all-reduce in backward.
    ``narrow``: its products are among those that a recipe has in 8 or 4 bits; ``width``: of an input that is not the
    hidden state."""
    layout, size = ctx.layout, boundary_bytes(ctx, None, width)
    each = gathered_bytes_each(ctx, narrow)
    gathered = boundary_bytes(ctx, each, width) * layout.sequence_parallel
    with_sp, without = size * layout.sequence_parallel, size * (1 - layout.sequence_parallel)
    return (
        Collective("all_gather", "tp", gathered, "forward", bytes_each=each, matrices=matrices),
        Collective(
            "all_gather",
            "tp",
            gathered * ctx.kernels.regather_input,
            "backward",
            overlaps="input gradient",
            bytes_each=each,
            matrices=matrices,
        ),
        Collective("reduce_scatter", "tp", with_sp, "backward", overlaps="weight gradient", matrices=matrices),
        Collective("all_reduce", "tp", without, "backward", overlaps="weight gradient", matrices=matrices),
    )


def row_collectives(ctx: Context, width: Number | None = None) -> tuple[Collective, ...]:
    """Leaving a region: reduce-scatter (all-gather in backward) under sequence parallelism, else an all-reduce."""
    layout, size = ctx.layout, boundary_bytes(ctx, None, width)
    each = gathered_bytes_each(ctx)
    gathered = boundary_bytes(ctx, each, width) * layout.sequence_parallel
    with_sp, without = size * layout.sequence_parallel, size * (1 - layout.sequence_parallel)
    return (
        Collective("reduce_scatter", "tp", with_sp, "forward"),
        Collective("all_gather", "tp", gathered, "backward", bytes_each=each),
        Collective("all_reduce", "tp", without, "forward"),
    )


def sequence_gathers(ctx: Context, width: Number, reduced: bool = True) -> tuple[Collective, ...]:
    """A tensor that all ranks read whole without a product of its own: gathered under sequence parallelism, and where
    its gradient flows on, that is summed and scattered."""
    size = boundary_bytes(ctx, None, width) * ctx.layout.sequence_parallel
    gathered = Collective("all_gather", "tp", size, "forward")
    return (gathered, Collective("reduce_scatter", "tp", size, "backward")) if reduced else (gathered,)
