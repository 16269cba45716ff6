"""Rent against buy in words and as a table: what an owned hour is made of, when buying pays off, cash of each year."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from distsim.engine.planner import Plan
from distsim.engine.plans.ownership import Ownership
from distsim.engine.plans.plan import Option
from distsim.report.plan_words import days, dollars
from distsim.report.style import Style, columns
from distsim.specs.dates import dated
from distsim.specs.facility import Facility
from distsim.units import DAY, YEAR, YEAR_MONTHS

HEAD = ("year", "buying", "renting", "buying so far", "renting so far")


def sentences(own: Ownership, option: Option, house: Facility, today: datetime.date) -> list[str]:
    """What a buyer has to know, a sentence each; the first is about one accelerator."""
    one = option.candidate
    parts = ", ".join(f"{dollars(cost)} {name}" for name, cost in own.parts.items() if cost)
    bought = (
        f"bought for {dollars(own.price)} ({own.item}, {dated(own.date, today)}, network included), an hour in use "
        f"costs {dollars(own.owned_per_hour)} ({parts})"
    )
    if not own.rent_per_hour:
        return [bought, f"all {option.bought_gpus:,} cost {dollars(own.price * option.bought_gpus)} to buy"]
    months = own.break_even_months
    never = months == float("inf")
    late = ", beyond its life" if not never and months > YEAR_MONTHS * house.lifetime_years else ""
    when = "never" if never else f"after {months:,.1f} months{late}"
    run = option.days * DAY / YEAR * YEAR_MONTHS
    takes = f"{run:,.1f} months" if run >= 1 else days(option.days)
    idle = own.rent_per_used_hour != own.rent_per_hour
    paid = f" ({dollars(own.rent_per_hour)} an hour, used or not)" if idle else ""
    return [
        f"{bought} against {dollars(own.rent_per_used_hour)} of rent{paid}",
        f"buying pays off {when}; this run takes {takes}",
        f"all {one.gpus:,} of them cost {dollars(own.price * one.gpus)} to buy",
    ]


def assumed(house: Facility) -> str:
    """The house that the machines stand in."""
    hall = (
        "the hall is there" if house.usd_per_kw_month is None else f"hall at ${house.usd_per_kw_month:g} per kW-month"
    )
    known = house.usd_per_kwh is not None
    power = f"${house.usd_per_kwh:g} per kWh" if known else "electricity not counted: no price of it is stated"
    return (
        f"in use {house.utilisation:.0%} of the time, written off in {house.lifetime_years:g} years to "
        f"{house.residual_fraction:.0%}, upkeep {house.upkeep_fraction:.0%} a year, {hall}, {power}"
    )


def buying_lines(made: Plan, option: Option, today: datetime.date, term: Style) -> Sequence[str]:
    """The section on the terminal."""
    own, gpu = made.buying(option), option.candidate.gpu
    if own is None:
        return [f"{term.bold('Rent or buy')}: no price of a system with {gpu} is known"]
    rents, house = own.rent_per_hour > 0, made.request.facility
    rows = [
        [str(one.year), *map(dollars, (one.buying, one.renting, one.buying_so_far, one.renting_so_far))]
        for one in own.years
    ]
    shown = [place for place, name in enumerate(HEAD) if rents or "rent" not in name]
    table = columns([HEAD[place] for place in shown], [[row[place] for place in shown] for row in rows])
    told = "; ".join(sentences(own, option, house, today))
    return [f"{term.bold('Rent or buy' if rents else 'Bought')}, per {gpu}: {told}", *table, assumed(house)]
