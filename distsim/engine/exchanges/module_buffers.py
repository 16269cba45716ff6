"""Buffers of modules (rotary frequencies, masks, ids), which torch DDP sends from rank 0 to all."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.exchanges.flows import Flow, Span
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.module_buffers import held_buffer
from distsim.engine.jobs.resolve import Setup


def buffer_flows(setup: Setup, exchange: Exchange, owned: Number) -> list[Flow]:
    """One broadcast for each number format, in each forward whose backward reduces whole gradients: none where ranks
    own gradients, as DDP is not what shares them then (torch nn/parallel/distributed.py, _sync_buffers)."""
    layout = setup.layout
    if not setup.framework.traffic.buffer_broadcast:
        return []
    sizes: dict[str, Number] = {}
    for kind in setup.kernels.module_buffers:
        dtype, size = held_buffer(setup, kind)
        sizes[dtype] = sizes.get(dtype, 0) + size
    span, calls = (
        Span("dp", layout.dp * layout.cp, layout.tp, world=layout.gpus),
        exchange.syncs(layout.micro_batches) * (1 - owned),
    )
    return [
        Flow("buffers", "broadcast", span, dtype, "forward", calls, size, role="buffers")
        for dtype, size in sizes.items()
    ]
