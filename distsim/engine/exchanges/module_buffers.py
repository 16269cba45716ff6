"""Buffers of modules (rotary frequencies, masks, ids), which torch DDP sends from rank 0 to all."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.exchanges.flows import Flow, Span
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.traffic import DTYPE_BYTES


def buffer_flows(setup: Setup, exchange: Exchange, owned: Number) -> list[Flow]:
    """One broadcast for each number format, in each forward whose backward reduces whole gradients: none where ranks
    own gradients, as DDP is not what shares them then (torch nn/parallel/distributed.py, _sync_buffers)."""
    layout = setup.layout
    if not setup.framework.traffic.buffer_broadcast:
        return []
    sizes: dict[str, Number] = {}
    for kind in setup.kernels.module_buffers:
        dtype, size = _held(setup, kind)
        sizes[dtype] = sizes.get(dtype, 0) + size
    span, calls = (
        Span("dp", layout.dp * layout.cp, layout.tp, world=layout.gpus),
        exchange.syncs(layout.micro_batches) * (1 - owned),
    )
    return [Flow("buffers", "broadcast", span, dtype, "forward", calls, size) for dtype, size in sizes.items()]


def _held(setup: Setup, kind: str) -> tuple[str, Number]:
    """The number format and bytes of one kind of buffer in a whole model (transformers' nn.Buffer)."""
    model = setup.model
    places = model.position_rows or model.context
    width = int(model.rotary_width) if model.positions == "rotary" else 0
    tables = max(setup.kernels.rope_tables // 2, 1)
    wide = setup.precision.parameter_bytes >= DTYPE_BYTES["fp32"]
    dtype, elements = {
        "frequencies": ("fp32", 2 * tables * (width // 2)),  # as they are, and as they were before scaling
        "tables": ("fp32", model.layers * places * width),
        "scale": ("fp32" if wide else "bf16", 1),
        "ids": ("int64", places),
        "mask": ("bool", places**2),
        "masks": ("bool", model.layers * places**2),
    }[kind]
    return dtype, elements * DTYPE_BYTES[dtype]
