"""What a plan is asked."""

from __future__ import annotations

from dataclasses import dataclass

from distsim.engine.plans.besides import USUAL_KEPT
from distsim.engine.plans.candidates import Terms
from distsim.engine.plans.choice import Wish
from distsim.specs.facility import Facility
from distsim.specs.price import Term


@dataclass(frozen=True)
class Request:
    """A plan as the user asked for it."""

    terms: Terms
    tokens: float
    wish: Wish
    facility: Facility
    price_terms: tuple[Term, ...] = ("on-demand",)
    gpus: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    providers: tuple[str, ...] = ()
    compute_optimal: bool = False
    kept: int = USUAL_KEPT
    """Checkpoints that stay in storage."""
    price_days: float | None = None
    """Prices so much older than the newest are left out; None for rents older than a year."""
    own_rate: float | None = None
    """Dollars per accelerator and hour of whatever is tried, instead of price lists."""
