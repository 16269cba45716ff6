"""Rates of one accelerator under one precision recipe: best measured where somebody measured them."""

from __future__ import annotations

from distsim.engine.attention_rates import attention_rates
from distsim.engine.energy import profile_of
from distsim.engine.lacking import narrow_units, wide_units
from distsim.engine.resolve import Setup
from distsim.errors import DistsimError
from distsim.formulas.compute import ATTENTION_HALF_RATE, ATTENTION_TILE, USUAL_EXPONENTIALS, power_limited_share

TYPICAL_SHARE = 0.8
"""Best measured product over the datasheet rate where nobody measured an accelerator: the middle of those measured."""
TYPICAL_SHARES = {"tpu": 0.9, "gaudi": 0.95, "cdna3": 0.55}  # as the members of each that were measured
NARROW_SHARE = 0.95
"""Best measured 8-bit product over the best 16-bit one, as shares of their peaks: 0.88 to 1.04 where both were."""
DEFAULT_UNITS = 1
"""Units of an accelerator that does not state them: waves of tiles then cost nothing."""
SCAN_AGES = {"blackwell": 0.5}
"""What is left of SCAN_SHARE on chips whose tensor cores Triton's scan was not written for: it runs about as many
products a second as on Hopper (assumed)."""
SCAN_SHARE = 0.08
"""Rate of a chunked scan's products over flash attention's. Recalled: Dao and Gu 2024 (arXiv:2405.21060), figure 10. At
a state of 64 a scan takes as long as FlashAttention-2 at 2 to 3 thousand tokens, for a thirteenth of its work."""


class Chip:
    """Rates of one accelerator under one precision recipe."""

    def __init__(self, setup: Setup) -> None:
        chip, peak, precision = setup.accelerator, setup.accelerator.peak, setup.precision
        wide = "fp32" if precision.activation_bytes > 2 else "fp16" if precision.math == "fp16" else "bf16"
        named = precision.math if wide == "fp32" else wide
        units = wide_units(peak, named)
        if not units:
            raise DistsimError(f"{chip.name} states no peak rate for {precision.name}", "add it under [peak]")
        stated: float = getattr(peak, units)
        self.rate = stated
        reached = chip.measured
        typical = TYPICAL_SHARES.get(chip.architecture.split()[0], TYPICAL_SHARE)
        self.rate *= (reached.matmul_fp16 if wide == "fp16" else None) or reached.matmul_bf16 or typical
        narrow = narrow_units(peak, precision.math)
        narrow_share = reached.matmul_fp8 or (NARROW_SHARE * reached.matmul_bf16 if reached.matmul_bf16 else typical)
        self.narrow_rate = getattr(peak, narrow) * narrow_share if narrow else None
        generation = chip.architecture.split()[0]
        if chip.power and chip.rated_power:
            limit = power_limited_share(chip.power, chip.rated_power, profile_of(chip).idle_fraction)
            self.rate, self.narrow_rate = self.rate * limit, self.narrow_rate and self.narrow_rate * limit
        self.scan_rate = self.rate * SCAN_SHARE * SCAN_AGES.get(generation, 1.0)
        self.attention = attention_rates(setup)
        self.wide_rate = (peak.fp32 or stated) * (reached.matmul_bf16 or typical)
        self.vector_rate = peak.fp32 or stated
        self.bandwidth = chip.bandwidth
        self.units, self.array = chip.chip.units or DEFAULT_UNITS, chip.chip.array or 0
        self.attention_block = chip.chip.attention_block or ATTENTION_TILE
        self.exponentials = chip.chip.exponentials or USUAL_EXPONENTIALS
        self.cache = float(chip.chip.cache or 0)
        self.unit_rate = self.rate / chip.chip.units if chip.chip.units else ATTENTION_HALF_RATE
