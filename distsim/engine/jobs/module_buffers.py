"""Buffers that modules hold beside parameters: rotary frequencies and tables, masks, ids."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.traffic import DTYPE_BYTES

GROWING = ("tables", "mask", "masks", "ids")
"""Kinds whose size grows with positions."""


def module_buffers(setup: Setup) -> list[tuple[str, float, Number]]:
    """The kinds of those that grow with positions, with bytes of an element and of all; all others are a few hundred
    bytes."""
    found = ((kind, *held_buffer(setup, kind)) for kind in setup.kernels.module_buffers if kind in GROWING)
    return [(kind, DTYPE_BYTES[dtype], size) for kind, dtype, size in found if size]


def held_buffer(setup: Setup, kind: str) -> tuple[str, Number]:
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
