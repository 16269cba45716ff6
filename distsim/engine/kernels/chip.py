"""Rates of one accelerator under one precision recipe: best measured where somebody measured them."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.engine.jobs.hardware import profile_of
from distsim.engine.jobs.lacking import XLA, narrow_units, wide_units
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.attention_rates import (
    attention_rates,
    backward_products,
    efficient_rates,
    fp32_rates,
    masked_rates,
    narrow_attention,
    own_width,
    portable_rates,
)
from distsim.engine.kernels.softmax_passes import plain_torch
from distsim.errors import DistsimError
from distsim.formulas.compute import (
    ATTENTION_HALF_RATE,
    ATTENTION_TILE,
    BACKWARD_PRODUCTS,
    USUAL_EXPONENTIALS,
)
from distsim.formulas.power import narrowed_share, power_limited_share, sustained_share, zeros_gain
from distsim.layers.attention_kernel import FLASH_BYTES
from distsim.specs.accelerator import Accelerator

TYPICAL_SHARE = 0.8
"""Best measured product over the datasheet rate where nobody measured an accelerator or its relatives: the middle of
those measured."""
NARROW_SHARE = 0.95
"""Best measured 8-bit product over the best 16-bit one, as shares of their peaks: 0.88 to 1.04 where both were."""
FOUR_BIT_JOULES = 0.64
"""Energy of an operation of a 4-bit product over that of an 8-bit one: what the best of both on B200, GB200 and B300
ask for (0.67, 0.55 and 0.70), where halving 16 bits leaves 0.54 (NARROW_SHARE)."""
ZEROS = 0.5
"""Share of zeros in what ReLU gives: of negative numbers, half as long as little has been learned."""
DEFAULT_UNITS = 1
"""Units of an accelerator that does not state them: waves of tiles then cost nothing."""
SCAN_SHARE = 0.08
"""Rate of a chunked scan's products over flash attention's. Recalled: Dao and Gu 2024 (arXiv:2405.21060), figure 10. At
a state of 64 a scan takes as long as FlashAttention-2 at 2 to 3 thousand tokens, for a thirteenth of its work."""


class Chip:
    """Rates of one accelerator under one precision recipe, by what asks for them."""

    def __init__(self, setup: Setup) -> None:
        self.traits = traits_of(setup.accelerator)
        share = self._products(setup)
        self._attention(setup, share)
        self._limited(setup.accelerator)
        self._passes(setup)
        self._units(setup)

    def _products(self, setup: Setup) -> float:
        """Large products without a limit on power; what is returned is the share that 16 bits reach of their rate."""
        chip, peak, precision = setup.accelerator, setup.accelerator.peak, setup.precision
        wide = "fp32" if precision.activation_bytes > FLASH_BYTES else "fp16" if precision.math == "fp16" else "bf16"
        units = wide_units(peak, precision.math if wide == "fp32" else wide)
        if not units:
            raise DistsimError(f"{chip.name} states no peak rate for {precision.name}", "add it under [peak]")
        stated: float = getattr(peak, units)
        inside = chip.chip
        self.per_clock = stated / inside.units / float(inside.clock) if inside.units and inside.clock else None
        reached = chip.measured
        self.measured = bool(reached.matmul_bf16 or reached.matmul_fp16)
        share = reached.matmul_bf16 or reached.matmul_fp16 or usual_share(chip)
        exact = reached.matmul_fp32 or exact_share(chip, share)
        own = {"fp32": exact, "tf32": reached.matmul_tf32}.get(units, reached.matmul_fp16 if wide == "fp16" else None)
        self.rate = stated * (own or share)
        self._stated = stated
        if (wide, units) == ("bf16", "fp32") and setup.framework.family != XLA:
            self.rate *= self.traits.widened_share  # XLA's products are in fp32 throughout
        self.weight_share = self.traits.tf32_weight_share if units == "tf32" else 1.0
        narrow = narrow_units(peak, precision.math)
        self._narrow_stated = getattr(peak, narrow) if narrow else None
        self.narrow_rate = getattr(peak, narrow) * narrow_share(chip, narrow, share) if narrow else None
        if self.narrow_rate and precision.needs and getattr(peak, precision.needs):
            self.narrow_rate *= precision.scaled_share
        # products of adapters in a step of 16 bits are too short for power to hold them back
        self.wide_rate = peak.fp32 * (reached.matmul_fp32 or share) if peak.fp32 else stated * share
        self.vector_rate = peak.fp32 or stated
        self.batched_share = self.traits.batched_share if wide == "fp16" else 1.0
        return share

    def _attention(self, setup: Setup, share: float) -> None:
        """Kernels of attention, over large products."""
        tf32 = setup.accelerator.peak.tf32
        exactly = fp32_rates(setup, self.rate, tf32 * share) if _in_three(setup) and tf32 else None
        each = self.per_clock
        self.attention = exactly or attention_rates(setup, each)
        self.efficient = exactly or efficient_rates(setup, each)
        self.masked, self.portable = exactly or masked_rates(setup, each), exactly or portable_rates(setup, each)
        self.own_width = own_width(setup)
        self.narrow_attention = narrow_attention(setup)
        self.sdpa = setup.kernels.sdpa and setup.precision.activation_bytes <= FLASH_BYTES
        block = setup.kernels.attention_block or setup.accelerator.chip.attention_block
        self.attention_block = block or ATTENTION_TILE
        self.grid_kernels = grid_kernels(setup)
        self.masks_edges = bool(self.grid_kernels) and setup.kernels.attention_kernel == "tokamax"
        self.query_ranks, self.chunks = setup.layout.cp, setup.model.window_chunks

    def _limited(self, chip: Accelerator) -> None:
        """Products under the power that there is, and what is told of their rate."""
        if chip.power and chip.rated_power:
            limit = power_limited_share(chip.power, chip.rated_power, _idle_fraction(chip))
            self.rate, self.narrow_rate = self.rate * limit, self.narrow_rate and self.narrow_rate * limit
        self._spared(chip)
        self.scan_rate = self.rate * SCAN_SHARE * self.traits.scan_share
        self.unit_rate = self.rate / chip.chip.units if chip.chip.units else ATTENTION_HALF_RATE
        if not self.traits.attention_age and self.traits.older_per_clock and self.per_clock:
            # exponentials and edges of blocks take clocks, as products do, whatever clock power leaves
            self.unit_rate = ATTENTION_HALF_RATE * self.per_clock / self.traits.older_per_clock

    def _spared(self, chip: Accelerator) -> None:
        """How much faster products are whose operand is half zeros."""
        self.zeros_gain, self.narrow_zeros_gain = 1.0, 1.0
        if self.traits.full_clock_joules:
            self.zeros_gain = zeros_gain(self.rate / self._stated, ZEROS)
            if self.narrow_rate:
                self.narrow_zeros_gain = zeros_gain(self.narrow_rate / self._narrow_stated, ZEROS)

    def _passes(self, setup: Setup) -> None:
        """Memory, as kernels meet it that compute little."""
        chip, self.element_bytes = setup.accelerator, setup.precision.activation_bytes
        self.bandwidth = chip.pass_bandwidth
        wide = plain_torch(setup) and self.element_bytes > FLASH_BYTES  # where nothing is narrow nothing is cast
        self.pass_bandwidth = chip.pass_bandwidth / (self.traits.wide_passes if wide else 1.0)
        # what limits a product that computes little is a copy's rate, not the datasheet's
        self.product_bandwidth = chip.copy_bandwidth

    def _units(self, setup: Setup) -> None:
        """What is inside the chip."""
        inside = setup.accelerator.chip
        self.units, self.array, self.cores = inside.units or DEFAULT_UNITS, inside.array or 0, inside.cores or 1
        self.exponentials = inside.exponentials or USUAL_EXPONENTIALS
        self.cache = float(inside.cache or 0)


def grid_kernels(setup: Setup) -> int:
    """Kernels of attention's backward whose blocks are steps of one loop (Pallas on TPUs): one, or one for queries and
    one for keys and values where each makes the scores again; none on chips of other kernels."""
    if setup.accelerator.chip.attention_block is None:
        return 0
    return 1 if backward_products(setup) in (None, BACKWARD_PRODUCTS) else 2


def _in_three(setup: Setup) -> bool:
    """Whether attention in one kernel makes three products on TF32 units of each in fp32."""
    return setup.precision.activation_bytes > FLASH_BYTES and traits_of(setup.accelerator).cuda


def usual_share(chip: Accelerator) -> float:
    """Best product over the datasheet rate, for a chip that nobody measured: what its power sustains, where the energy
    of its relatives' operations is known."""
    traits, peak = traits_of(chip), max(chip.peak.bf16 or 0.0, chip.peak.fp16 or 0.0)
    return _by_power(chip, peak, traits.full_clock_joules) or traits.usual_share or TYPICAL_SHARE


def exact_share(chip: Accelerator, wide: float) -> float:
    """Best fp32 product over the datasheet rate of a chip on which nobody measured one: what its power sustains, where
    its relatives' energy is known, else as of 16 bits (``wide``)."""
    return _by_power(chip, chip.peak.fp32 or 0.0, traits_of(chip).fp32_joules) or wide


def _by_power(chip: Accelerator, peak: float, joules: float | None) -> float:
    """The share of a rate that a chip's power sustains; 0 where power, rate or an operation's energy is unknown."""
    watts = chip.rated_power or chip.power
    if joules is None or watts is None or not peak:
        return 0.0
    return float(sustained_share(watts, peak, joules, _idle_fraction(chip)))


def _idle_fraction(chip: Accelerator) -> float:
    """What a chip draws when it is idle, over what it is rated for."""
    return profile_of(chip).idle_fraction


def narrow_share(chip: Accelerator, units: str, wide: float) -> float:
    """Best product of 8 or 4 bits over the datasheet rate, where ``wide`` is that of 16 bits. Rates of 4 bits grow from
    chip to chip faster than the power for them."""
    eight = chip.measured.matmul_fp8 or NARROW_SHARE * wide
    if units != "fp4":
        return eight
    twice = chip.peak.fp8 or chip.peak.fp4
    assert twice and chip.peak.fp4
    return chip.measured.matmul_fp4 or float(narrowed_share(eight, chip.peak.fp4 / twice, FOUR_BIT_JOULES))
