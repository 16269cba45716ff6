"""What a limit on power leaves of the rate of matrix products; all take numbers or arrays."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.formula import formula

POWER_EXPONENT = 0.65
"""How the rate of products follows power above idle, where voltage falls with the clock: between 1/3, voltage in
proportion, and 1, none. Fitted: torchtitan's runs on a 700 W Hopper limited to 500 W."""
ZEROS_POWER = 0.5
"""Part of the power above idle that products of zeros save. Gregersen, Patel and Choukse 2024 (arXiv:2409.18324): what
is multiplied changes a GPU's power by almost 40%, of which an idle one draws a fifth."""
UNLIMITED_SHARE = 0.96
"""Best product over the datasheet rate where power does not limit it: H20 0.96, L20 0.95, L40 0.94, A10G 1.00, whose
units multiply at a half or less of what their silicon can (sources in presets/gpus)."""


@formula(
    unit="1",
    source="clocks follow the power above idle (fitted to runs of a 700 W chip at 500 W, docs/findings/chips.md)",
)
def power_limited_share(watts: Number, rated_watts: Number, idle_fraction: Number) -> Number:
    """Rate of products under a power limit relative to that at rated power, of which an idle chip draws a fraction."""
    idle = idle_fraction * rated_watts
    return (maximum(watts - idle, 0.0) / (rated_watts - idle)) ** POWER_EXPONENT


@formula(unit="1", source="as power_limited_share, where the datasheet's rate needs more power than the chip may draw")
def sustained_share(watts: Number, peak: Number, joules: Number, idle_fraction: Number) -> Number:
    """Best product over the datasheet rate: follows from the power above idle available per operation, relative to what
    an operation takes at the datasheet's clock."""
    return minimum(UNLIMITED_SHARE, (watts * (1 - idle_fraction) / (peak * joules)) ** POWER_EXPONENT)


@formula(unit="1", source="as sustained_share, for two number formats on one chip")
def narrowed_share(share: Number, times_peak: Number, times_joules: Number) -> Number:
    """Best product over the datasheet rate in a narrower format, from the ``share`` of a wider one: at the same power,
    operations at ``times_peak`` the rate that take ``times_joules`` the energy each."""
    return share * minimum(1.0, (times_peak * times_joules) ** -POWER_EXPONENT)


@formula(unit="1", source="as sustained_share; Gregersen, Patel, Choukse 2024 (arXiv:2409.18324)")
def zeros_gain(share: Number, zeros: Number) -> Number:
    """Rate of products of which a share of the factors is ``zeros`` over that of others, which reach ``share`` of the
    datasheet's rate: zeros take no power to multiply."""
    return maximum(1.0, minimum(UNLIMITED_SHARE / share, (1 - ZEROS_POWER * zeros) ** -POWER_EXPONENT))
