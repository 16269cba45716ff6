"""Another accelerator that costs hardly more than the cheapest: predictions do not tell the two apart."""

from __future__ import annotations

from collections.abc import Sequence

from distsim import catalog
from distsim.engine.plans.choice import Wish, cheapest
from distsim.engine.plans.plan import Option


def ratio_error() -> float:
    """How far the ratio of two accelerators' speeds is off in the median of sources that measured both, as a share
    (presets/timing/chip_pairs.toml)."""
    return float(catalog.load("timing", "chip_pairs")["ratio_error"])


def rival(found: Sequence[Option], wish: Wish, chosen: Option | None) -> Option | None:
    """The cheapest option within the limits on another accelerator than the chosen one, if it costs more by no more
    than their ratio may well be off; None where there is none. Offers of one accelerator differ in prices, which are
    known."""
    if chosen is None:
        return None
    other = cheapest([one for one in found if one.gpu != chosen.gpu], wish)
    near = other is not None and other.dollars <= chosen.dollars * (1 + ratio_error())
    return other if near else None
