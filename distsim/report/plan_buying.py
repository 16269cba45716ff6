"""Rent against buy in words and as a table: what an owned hour is made of, when buying pays off, cash of each year."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from distsim.engine.plans.ownership import Ownership
from distsim.engine.plans.plan import Option, whole_units
from distsim.engine.plans.planner import Plan
from distsim.report.plan_words import days
from distsim.report.prose import number
from distsim.report.style import Style, columns
from distsim.specs.dates import dated
from distsim.specs.facility import Facility
from distsim.units import DAY, YEAR, YEAR_MONTHS, dollars

HEAD = ("year", "buying", "renting", "buying so far", "renting so far")
AMOUNTS = ("buying", "renting", "buying_so_far", "renting_so_far")
"""Fields of a year in the columns after the first."""


def sentences(own: Ownership, option: Option, house: Facility, today: datetime.date) -> list[str]:
    """What a buyer has to know, a sentence each; the first is about one accelerator."""
    one = option.candidate
    parts = ", ".join(f"{dollars(cost)} {name}" for name, cost in own.parts.items() if cost)
    low, high = own.ends
    ends = f"the middle of {dollars(low)} to {dollars(high)}: " if low < high else ""
    bought = (
        f"bought for {dollars(own.price)} ({ends}{own.item}, {dated(own.date, today)}, network included), "
        f"each hour in use costs {dollars(own.owned_per_hour)} ({parts})"
    )
    if not own.rented:
        return [bought, *_together(own, whole_units(one, own.together))]
    when = _when(own.break_even_months, house.lifetime_years)
    run = option.days * DAY / YEAR * YEAR_MONTHS
    takes = f"{run:,.1f} months" if run >= 1 else days(option.days)
    idle = own.rent_per_used_hour != own.rent_per_hour
    paid = f" ({dollars(own.rent_per_hour)} an hour, used or not)" if idle else ""
    return [
        f"{bought}, against {dollars(own.rent_per_used_hour)} to rent{paid}",
        f"buying {when}; this run takes {takes}",
        *_together(own, whole_units(one, own.together)),
    ]


def _when(months: float, life: float) -> str:
    """When buying pays off, if it does within the years that a machine lasts."""
    if months > YEAR_MONTHS * life:
        return f"does not pay off in the {life:g} years that a machine lasts"
    if months == YEAR_MONTHS * life:
        return f"pays off only once a machine is sold, after {life:g} years"
    return f"pays off after {number(months)} months"


def _together(own: Ownership, gpus: int) -> list[str]:
    """The price of all machines; nothing for a single one, whose price is given already."""
    return [f"all {gpus:,} of them cost {dollars(own.price * gpus)} to buy"] if gpus > 1 else []


def assumed(house: Facility) -> str:
    """The house that the machines stand in."""
    hall = (
        "hall already available"
        if house.usd_per_kw_month is None
        else f"hall at ${house.usd_per_kw_month:g} per kW-month"
    )
    known = house.usd_per_kwh is not None
    capital = "neither interest nor staff counted"
    if house.interest:
        capital = f"interest of {house.interest:.1%} a year on the mean of price and residual value, staff not counted"
    power = f"${house.usd_per_kwh:g} per kWh" if known else "electricity not counted: its price is not given"
    return (
        f"assumed: in use {house.utilisation:.0%} of the time, written off over {house.lifetime_years:g} years to "
        f"{house.residual_fraction:.0%} of the price, upkeep {house.upkeep_fraction:.0%} of the price a year, {hall}, "
        f"{power}, {capital}"
    )


def buying_lines(made: Plan, option: Option, today: datetime.date, term: Style) -> Sequence[str]:
    """The section on the terminal."""
    own, title = made.buying(option), term.bold(heading(option))
    if own is None:
        return [f"{title}: {no_price(made, option)}"]
    house = made.request.facility
    head, years = cash_of_years(own)
    table = columns(head, [[str(year), *map(dollars, amounts)] for year, amounts in years])
    told = "; ".join(sentences(own, option, house, today))
    return [f"{title}, per {option.candidate.gpu}: {told}", *table, assumed(house)]


def heading(option: Option) -> str:
    """Heading of the section; machines that are bought leave nothing to choose."""
    return "Bought" if option.quote.owned else "Rent or buy"


def no_price(made: Plan, option: Option) -> str:
    """Why there is nothing to compare a rent with."""
    new = "" if made.request.price_days is None else "recent enough "
    return f"no {new}price of a system with {option.candidate.gpu} is known"


def cash_of_years(own: Ownership) -> tuple[list[str], list[tuple[int, list[float]]]]:
    """Heads of columns, and each year with its dollars; without those of a rent where there is none."""
    shown = [place for place, name in enumerate(AMOUNTS) if own.rented or "rent" not in name]
    years = [(one.year, [getattr(one, AMOUNTS[place]) for place in shown]) for one in own.years]
    return [HEAD[0], *(HEAD[place + 1] for place in shown)], years
