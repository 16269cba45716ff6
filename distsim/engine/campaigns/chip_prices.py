"""What all price lists say of one accelerator."""

from __future__ import annotations

import math

from distsim import catalog
from distsim.specs.price import TERMS, Offer, Price, Purchase

Listed = tuple[Price, Offer | Purchase]
"""A row and the list that it is from."""


def prices_of(gpu: str) -> list[Listed]:
    """Rents, the lowest on-demand rate first, then purchases, the lowest price of an accelerator first."""
    names = catalog.aliases("gpus")
    lists = [catalog.load("prices", name) for name in catalog.names("prices")]
    rents = [(one, row) for one in lists for row in one.offers if names.get(row.gpu, row.gpu) == gpu]
    bought = [(one, row) for one in lists for row in one.purchases if row.gpu and names.get(row.gpu, row.gpu) == gpu]
    return [*sorted(rents, key=_rent), *sorted(bought, key=_price)]


def _rent(found: tuple[Price, Offer]) -> tuple[float, float]:
    """On-demand before all other terms."""
    prices, offer = found
    rates = {term: rate for term in TERMS if (rate := prices.usd_per_gpu_hour(offer, term)) is not None}
    return rates.get("on-demand", math.inf), min(rates.values())


def _price(found: tuple[Price, Purchase]) -> float:
    prices, row = found
    return row.middle * prices.usd_per_unit / (row.gpus or 1)
