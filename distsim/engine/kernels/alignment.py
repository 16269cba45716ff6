"""Rows of products that do not start at whole 16 bytes: what that costs, and whom it does not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number
from distsim.formulas.compute import ALIGNED_BYTES, aligned_share
from distsim.units import FP32_BYTES

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup


def pads_operands(setup: Setup) -> bool:
    """Whether operands are filled up to what tensor cores ask for: by a compiler (XLA's CublasPadForGemms, Inductor's
    shape_padding), or because a chip has no such cores but large arrays, whose compilers cut and fill (TPU, Gaudi)."""
    return bool(not setup.accelerator.chip.units or setup.framework.traffic.partitioned or setup.compiled)


def alignment(setup: Setup, n: Number, k: Number, element_bytes: float) -> Number:
    """Share of the rate that rows of ``n`` and ``k`` elements leave a product; those in fp32 need no tensor cores."""
    wide = element_bytes >= FP32_BYTES
    return 1.0 if wide or pads_operands(setup) else aligned_share(n, k, element_bytes)


def odd_vocabulary(setup: Setup) -> str:
    """A note on an output layer that is slow for its number of columns; nothing where it is not, or is of a task."""
    if not setup.model.output.over_vocabulary:
        return ""
    columns, each = setup.vocab_padded / setup.layout.vocab_ranks, setup.precision.activation_bytes
    share = alignment(setup, columns, setup.model.hidden, each)
    if share == 1:
        return ""
    whole = int(ALIGNED_BYTES // each) * setup.layout.vocab_ranks
    better = -(-setup.vocab_padded // whole) * whole
    return (
        f"rows of the output layer's {columns:,.0f} columns do not start at whole {ALIGNED_BYTES} bytes: its products "
        f"run at {share:g} of their rate; with a vocabulary padded to {better:,} they would run at all of it"
    )
