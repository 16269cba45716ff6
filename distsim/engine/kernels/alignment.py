"""Rows of products that do not start at whole 16 bytes: what that costs, and whom it does not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.architectures import traits_of
from distsim.arrays import Number, round_up
from distsim.engine.kernels.chip import Chip
from distsim.formulas.alignment import ALIGNED_BYTES, UNALIGNED, UNALIGNED_PER_CYCLE, aligned_share
from distsim.units import FP32_BYTES

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup


def pads_operands(setup: Setup) -> bool:
    """Whether operands are filled up to what tensor cores ask for: by a compiler (XLA's CublasPadForGemms, Inductor's
    shape_padding), or because a chip has no such cores but large arrays, whose compilers cut and fill (TPU, Gaudi)."""
    return bool(not setup.accelerator.chip.units or setup.framework.traffic.partitioned or setup.compiled)


def alignment(setup: Setup, n: Number, k: Number, element_bytes: float, rate: float) -> Number:
    """Share of the ``rate`` of products that rows of ``n`` and ``k`` elements leave one; those in fp32 need no tensor
    cores."""
    on_tf32 = setup.precision.math == "tf32" and setup.accelerator.peak.tf32
    exact = element_bytes >= FP32_BYTES and not on_tf32
    if exact or pads_operands(setup):
        return 1.0
    chip, shares = setup.accelerator, UNALIGNED
    units, clock = chip.chip.units, chip.chip.clock
    if traits_of(chip).unaligned_by_clock and units and clock:
        narrowest = next((size for size in UNALIGNED_PER_CYCLE if element_bytes <= size), FP32_BYTES)
        eight, four, two = (each * units * float(clock) / rate for each in UNALIGNED_PER_CYCLE[narrowest])
        shares = min(eight, 1.0), min(four, 1.0), min(two, 1.0)
    return aligned_share(n, k, element_bytes, *shares)


def odd_vocabulary(setup: Setup) -> str:
    """A note on an output layer that is slow for its number of columns; nothing where it is not, or is of a task."""
    if not setup.model.output.over_vocabulary:
        return ""
    columns, each = setup.vocab_padded / setup.layout.vocab_ranks, setup.precision.activation_bytes
    share = alignment(setup, columns, setup.model.hidden, each, Chip(setup).rate)
    if share == 1:
        return ""
    whole = int(ALIGNED_BYTES // each) * setup.layout.vocab_ranks
    better = round_up(setup.vocab_padded, whole)
    return (
        f"rows of the output layer's {columns:,.0f} columns are not aligned to {ALIGNED_BYTES} bytes: its products "
        f"run at {share:.2g} of their rate; a vocabulary padded to {better:,} would restore the full rate"
    )
