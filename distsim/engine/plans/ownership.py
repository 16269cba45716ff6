"""Rent against buy: what a bought accelerator costs per used hour, when it breaks even, and the cash of each year."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distsim import catalog
from distsim.engine.campaigns.prices import day
from distsim.engine.figures import Figures
from distsim.formulas import money
from distsim.specs.dates import span
from distsim.specs.facility import Facility
from distsim.specs.price import Price, Purchase


@dataclass(frozen=True)
class Year:
    """Cash that leaves in one year; negative where a resale brings money in."""

    year: int
    buying: float
    renting: float
    buying_so_far: float
    renting_so_far: float


@dataclass(frozen=True)
class Ownership:
    """All amounts are dollars per accelerator."""

    item: str
    date: str
    source: str
    price: float
    """With its share of the network."""
    owned_per_hour: float
    rent_per_hour: float
    """0 where there is none to compare with."""
    rent_per_used_hour: float
    """More than the rent of an hour where idle hours are paid too."""
    break_even_months: float
    years: tuple[Year, ...]
    parts: Mapping[str, float]
    """What makes up an owned hour in use."""
    figures: Figures
    together: int = 1
    """How many are sold together."""
    ends: tuple[float, float] = (0.0, 0.0)
    """Between which the price lies by what its sources say."""
    life: float = 0.0
    """Years until it is sold."""

    @property
    def rented(self) -> bool:
        """Whether there is a rent to compare with."""
        return self.rent_per_hour > 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data; a break-even that never comes is null, and rent where there is none to compare with."""
        months = self.break_even_months
        unknown = {} if self.rented else {"renting": None, "renting_so_far": None}
        return {
            "item": self.item, "date": self.date, "usd_per_gpu": self.price,
            "usd_per_gpu_low": self.ends[0], "usd_per_gpu_high": self.ends[1],
            "owned_usd_per_gpu_hour": self.owned_per_hour, "rent_usd_per_gpu_hour": self.rent_per_hour or None,
            "rent_usd_per_used_gpu_hour": self.rent_per_used_hour or None,
            "owned_usd_per_gpu_hour_parts": dict(self.parts),
            "break_even_months": None if months == float("inf") else months,
            "years": [{**vars(year), **unknown} for year in self.years],
        }  # fmt: skip


def system_for(gpu: str, lists: Sequence[str] = (), since: float = -math.inf) -> Purchase | None:
    """The newest price of a system with an accelerator, in dollars, whole clusters before bare nodes; from the lists
    named if they have one, else from all that are known. None when none is from ``since``, the ordinal of a day, on."""
    for names in (lists, catalog.names("prices")):
        priced = [one for name in names for one in _systems(catalog.load("prices", name), gpu)]
        found = [one for one in priced if day(one.date) >= since]
        if found:
            return max(found, key=lambda one: (one.with_network, span(one.date)[1]))
    return None


def _systems(prices: Price, gpu: str) -> list[Purchase]:
    worth = prices.usd_per_unit
    return [
        one.model_copy(update={"low": one.low * worth, "high": one.high * worth})
        for one in prices.purchases
        if one.kind == "system" and one.gpus and one.gpu and catalog.load("gpus", one.gpu).name == gpu
    ]


def ownership(
    purchase: Purchase, rent_per_hour: float, watts_per_gpu: float, facility: Facility,
    rated_watts: float | None = None, reserved: bool = False,
) -> Ownership:  # fmt: skip
    """What buying one accelerator with its share of a system means against a rent: of the hours in use, of all hours
    where it is ``reserved``. A hall is rented for the most that it may draw, for what it draws where nobody says."""
    figures = Figures()
    rent = _rent_per_used_hour(rent_per_hour, facility, reserved, figures)
    price = _price(purchase, facility, figures)
    power = figures.use("electricity, in use", money.power_dollars_per_hour, watts=watts_per_gpu, pue=facility.pue,
                        usd_per_kwh=facility.usd_per_kwh or 0.0)  # fmt: skip
    each = _standing(price, rated_watts or watts_per_gpu, facility, figures)
    standing = sum(each.values())
    worn = figures.use(
        "depreciation, per hour owned", money.depreciation_dollars_per_hour, price=price,
        residual_fraction=facility.residual_fraction, lifetime_years=facility.lifetime_years,
    )  # fmt: skip
    owned = figures.use(
        "owned, per hour in use", money.owned_dollars_per_used_hour, depreciation_per_hour=worn,
        standing_per_hour=standing, power_per_used_hour=power, utilisation=facility.utilisation,
    )  # fmt: skip
    months = math.inf if not rent else figures.use(
        "break-even", money.break_even_months, price=price, rent_per_hour=rent, power_per_used_hour=power,
        standing_per_hour=standing, utilisation=facility.utilisation,
        residual_fraction=facility.residual_fraction, lifetime_years=facility.lifetime_years,
    )  # fmt: skip
    used = facility.utilisation * money.YEAR_HOURS
    running = float(power * used + standing * money.YEAR_HOURS)
    parts = {name: float(cost / facility.utilisation) for name, cost in {"depreciation": worn, **each}.items()}
    parts["electricity"] = float(power)
    years = _years(price, running, rent * used, facility)
    return Ownership(
        purchase.item, purchase.date, purchase.source, price, float(owned), rent_per_hour, rent, float(months),
        tuple(years), parts, figures, purchase.gpus or 1,
        (price * purchase.low / purchase.middle, price * purchase.high / purchase.middle), facility.lifetime_years,
    )  # fmt: skip


def _standing(price: float, rated_watts: float, facility: Facility, figures: Figures) -> dict[str, float]:
    """What a machine costs in every hour, in use or not; interest where the house states a rate."""
    found = {
        "upkeep": figures.use("upkeep, per hour owned", money.upkeep_dollars_per_hour, price=price,
                              upkeep_fraction_per_year=facility.upkeep_fraction),
        "hall": figures.use("hall, per hour owned", money.hall_dollars_per_hour, rated_watts=rated_watts,
                            usd_per_kw_month=facility.usd_per_kw_month or 0.0),
    }  # fmt: skip
    if facility.interest:
        found["interest"] = figures.use("interest, per hour owned", money.interest_dollars_per_hour, price=price,
                                        residual_fraction=facility.residual_fraction,
                                        interest_per_year=facility.interest)  # fmt: skip
    return {name: float(cost) for name, cost in found.items()}


def _rent_per_used_hour(rent_per_hour: float, facility: Facility, reserved: bool, figures: Figures) -> float:
    """What an hour in use costs to rent."""
    if not reserved:
        return rent_per_hour
    return float(figures.use("reserved rent, per hour in use", money.reserved_dollars_per_used_hour,
                             rent_per_hour=rent_per_hour, utilisation=facility.utilisation))  # fmt: skip


def _price(purchase: Purchase, facility: Facility, figures: Figures) -> float:
    """Dollars of one accelerator with its share of system and network; notes what else the house assumes."""
    network = 1.0 if purchase.with_network else 1 + facility.network_fraction
    for label, name, unit in (
        ("hall, per kW and month", "usd_per_kw_month", "USD"), ("electricity, per kWh", "usd_per_kwh", "USD"),
        ("share of hours in use", "utilisation", "1"), ("lifetime", "lifetime_years", "years"),
    ):  # fmt: skip
        value = getattr(facility, name)
        if value is not None:
            figures.note(label, value, unit, facility.source_of(name) or "")
    price = purchase.middle / (purchase.gpus or 1) * network
    return float(figures.note("price with share of the network", price, "USD", purchase.source))


def _years(price: float, running: float, rent: float, facility: Facility) -> Sequence[Year]:
    """Bought on the first day, sold at the end of its life, which may be within the last year."""
    years, bought, rented, life = [], 0.0, 0.0, facility.lifetime_years
    last = math.ceil(life)
    for year in range(1, last + 1):
        part = min(life - (year - 1), 1.0)
        sold = money.book_value(price, facility.residual_fraction, life, life) if year == last else 0
        buying = running * part + (price if year == 1 else 0.0) - sold
        bought, rented = bought + buying, rented + rent * part
        years.append(Year(year, buying, rent * part, bought, rented))
    return years
