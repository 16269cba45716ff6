"""Buffers through which tensor parallel ranks exchange tiles beside their products."""

from __future__ import annotations

from distsim.arrays import Number, nothing, where
from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tp_overlap import without_tiles
from distsim.formulas.buffers import tile_buffer_bytes

GATHERS, SCATTERS = 8, 4
"""Products of forward and backward that take in what is gathered, and that give out what is scattered: a buffer each
(NVIDIA/TransformerEngine pytorch/module/base.py 2.20.2, initialize_ub)."""


def user_buffer_bytes(setup: Setup, figures: Figures) -> Number:
    """Bytes outside of torch's allocator, of jobs that ask for tiles, which Megatron leaves off by default; gathers
    carry 8-bit inputs where products are in 8 bits."""
    layout = setup.layout
    if not setup.job.tp_comm_overlap or setup.framework.traffic.tp_tiles != "fitted" or nothing(layout.tp - 1):
        return 0.0
    wide = setup.precision.activation_bytes
    held = figures.use(
        "userbuffers", tile_buffer_bytes, tokens=layout.tokens, hidden=setup.model.hidden, gathers=GATHERS,
        gathered_bytes=1 if setup.precision.math == "fp8" else wide, scatters=SCATTERS, scattered_bytes=wide,
    )  # fmt: skip
    return where(layout.tp > 1, where(without_tiles(setup), 0, held), 0)
