"""Amounts of a plan as those who decide say them: dollars, days, energy, carbon; small ones in smaller units."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from distsim import catalog
from distsim.engine.campaigns.prices import OWN, Quote
from distsim.engine.footprint.peak_error import ROOM, TIGHT, peak_error
from distsim.engine.plans.choice import Wish
from distsim.engine.plans.goodput import Goodput
from distsim.engine.plans.layouts import ALIKE
from distsim.engine.plans.on_time import EVEN, SURE
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.engine.plans.rival import ratio_error
from distsim.report.prose import number
from distsim.specs.dates import dated
from distsim.units import (
    DAY,
    HOUR,
    KILOGRAMS_PER_TONNE,
    KWH_PER_MWH,
    MINUTE,
    days_words,
    decimal_bytes,
    dollars,
    duration,
)

BEYOND = "✗"
"""Marks an option that is beyond the limits; ``x`` where that cannot be shown."""


def days(length: float) -> str:
    """``21.6 days``; below two days in hours, below two hours in minutes."""
    return duration(length * DAY)


class Clock(NamedTuple):
    """The unit of a column of times, and how many of it a day has."""

    name: str
    of_day: float

    def told(self, length: float) -> str:
        """A length in days as the column has it."""
        return number(length * self.of_day)


def clock_of(options: Sequence[Option]) -> Clock:
    """Days; hours or minutes where all options take so little that days would be fractions."""
    longest = max(option.days for option in options) * DAY
    units = (("minutes", MINUTE, 2 * HOUR), ("hours", HOUR, 2 * DAY))
    return next((Clock(name, DAY / unit) for name, unit, limit in units if longest < limit), Clock("days", 1))


def gpu_hours(option: Option) -> str:
    """``1,720,000``, ``0.83``."""
    return number(option.gpu_hours, 0)


def rate(option: Option, today: datetime.date) -> str:
    """What an hour costs, of which instance and region, and how old that price is."""
    quote = option.quote
    told = "; ".join(filter(None, (quote.place, quote.dated(today))))
    return f"at ${quote.usd_per_gpu_hour:,.2f} per GPU-hour ({told})"


def energy(option: Option) -> str:
    """``428 MWh``, ``830 kWh``."""
    kwh = option.energy_kwh
    if kwh is None:
        return "unknown"
    return f"{number(kwh, 0)} kWh" if kwh < KWH_PER_MWH else f"{number(kwh / KWH_PER_MWH, 0)} MWh"


def drawn(option: Option) -> str:
    """Energy and carbon, or why they are not known."""
    if option.energy_kwh is None:
        return f"unknown: no rated power of {option.candidate.gpu} is known (power in a TOML of your own states one)"
    return ", ".join(filter(None, (energy(option), carbon(option))))


def carbon(option: Option) -> str:
    """``158 tCO2e``, ``310 kgCO2e``; nothing where the grid is not known."""
    tonnes = option.tonnes_co2e
    if tonnes is None:
        return ""
    small = tonnes < 1
    return f"{number(tonnes * KILOGRAMS_PER_TONNE, 0)} kgCO2e" if small else f"{number(tonnes, 0)} tCO2e"


def interval(option: Option) -> str:
    """The 90% interval of the rent."""
    return f"{dollars(option.dollars_at(option.days_low))} to {dollars(option.dollars_at(option.days_high))}"


def kept(made: Plan, option: Option) -> str:
    """How many runs of an option keep to the deadline, as its row of the table has it."""
    wish = made.request.wish.days
    return "" if wish is None else f"{punctual(made, option)} within {days_words(wish)}"


def within(wish: Wish) -> str:
    """The deadline, with the share of the runs that has to keep to it where that is stated."""
    sure = "" if wish.confidence == EVEN else f" in {wish.confidence:.0%} of all runs"
    return f"within {days_words(wish.days or 0.0)}{sure}"


def punctual(made: Plan, option: Option) -> str:
    """The share of an option's runs that keeps to the deadline, for a column."""
    share = made.request.wish.on_time(option)
    return "-" if share is None else f"{share:.0%}"


def unsure(made: Plan) -> str:
    """A warning where the cheapest option may well be late, with the next that is surer; nothing where it is sure."""
    chosen, wish = made.cheapest, made.request.wish
    share = None if chosen is None else wish.on_time(chosen)
    if share is None or share >= SURE:
        return ""
    one = made.surer
    told = f"the cheapest is on time in {share:.0%} of its runs"
    if one is None:
        return f"{told}, and no option is surer: try more accelerators, or a later deadline"
    found = wish.on_time(one) or 0.0
    kind = "surer" if found >= SURE else "the surest"
    cost = f"{days(one.days)}, {dollars(one.dollars)}, on time in {found:.0%}"
    more = f"; --confidence {SURE:.0%} asks for such" if found >= SURE else ""
    return f"{told}; {kind}: {one.gpus:,} x {one.gpu} {source(one.quote)}, {cost}{more}"


def undecided(made: Plan) -> str:
    """What is said of another accelerator that cannot be told from the cheapest; nothing where there is none."""
    chosen, one = made.cheapest, made.rival
    if chosen is None or one is None:
        return ""
    more = one.dollars / chosen.dollars - 1
    return (
        f"{one.gpus:,} x {one.gpu} {source(one.quote)}: {days(one.days)}, {dollars(one.dollars)}, {more:.1%} more than "
        f"the cheapest, which cannot be told from it: the predicted ratio of two accelerators' speeds is off by "
        f"{ratio_error():.0%} in the median; measure both before you order"
    )


def source(quote: Quote) -> str:
    """Where the machines come from: ``from Nebius``, ``purchased``, ``at your own rate``."""
    if quote.provider == OWN:
        return f"at your {OWN}"
    return "purchased" if quote.owned else f"from {quote.whose}"


def owed(option: Option) -> str:
    """What a reservation binds its buyer to; nothing for machines that are paid by the hour."""
    whole, terms = option.committed_dollars, option.terms
    if whole is None:
        return ""
    if option.quote.owned:
        more = option.bought_gpus - option.candidate.gpus
        idle = f", {more:,} more than this run uses{of_each(option)}" if more else ""
        return (
            f"{option.bought_gpus:,} accelerators cost {dollars(whole)} to buy ({option.quote.instance}, network "
            f"included{idle}); this run accounts for {dollars(option.dollars)} of their cost over their life"
        )
    paid = "the full term" if terms == 1 else f"{terms} full terms"
    return (
        f"{dollars(whole)} is owed for {paid} ({option.quote.term}); this run uses {dollars(option.dollars)} of it "
        f"({option.dollars / whole:.0%}){_further_terms(option, whole)}"
    )


def of_each(option: Option) -> str:
    """How many of each rack's accelerators the groups of a run take, where that is not all; else nothing."""
    one = option.candidate
    return f", whose groups of ranks take {one.domain_gpus} of each {one.domain}" if one.leaves_idle else ""


def rented_whole(option: Option) -> str:
    """What is paid for and not used where whole racks are rented; nothing where there is no such thing."""
    more = option.billed_gpus - option.candidate.gpus
    if option.quote.owned or not more:
        return ""
    whole = f"{option.billed_gpus:,} accelerators in whole instances of {option.quote.gpus_per_instance:,}"
    return f"{whole}, {more:,} more than this run uses{of_each(option)}"


def _further_terms(option: Option, whole: float) -> str:
    """Terms within the interval of the days where it holds other numbers of them, of which ``whole`` is the price of
    those of the days themselves; nothing where it holds none."""
    fewest, most = option.terms_in(option.days_low), option.terms_in(option.days_high)
    if not option.terms or not fewest or not most or fewest == most:
        return ""
    least, dearest = (dollars(whole / option.terms * terms) for terms in (fewest, most))
    return f"; {fewest} to {most} terms, {least} to {dearest}, within the 90% interval of its days"


def owed_whole(option: Option) -> str:
    """What a reservation owes whole, as an amount for a column."""
    return "-" if option.committed_dollars is None else dollars(option.committed_dollars)


def unbeaten(found: Sequence[Option]) -> str:
    """What the options of the front have in common."""
    kinds = [*(["reservations"] if any(one.terms is not None for one in found) else []),
             *(["purchases"] if any(one.quote.owned for one in found) else [])]  # fmt: skip
    whole = f"; {' and '.join(kinds)} count in full" if kinds else ""
    return f"no other option is both faster and cheaper (days within {ALIKE:.0%} count as equal{whole})"


def outside(made: Plan, shown: Sequence[Option], before: str) -> str:
    """What a mark at options beyond the limits means, after ``before``; nothing where all that are shown keep to
    them."""
    return "" if all(map(made.request.wish.met, shown)) else f"{before}outside the limits"


def standing_by(option: Option) -> str:
    """Spares and what they would cost, which is in no other amount, or what having none means."""
    terms, spares = option.candidate.goodput, option.candidate.goodput.spares
    if not spares:
        which = "each failure that is no preemption" if terms.preempted else "each failure"
        waiting = f"{which} waits for its repair, {duration(terms.wait)}"
        return f"none: {waiting if terms.wait else 'repairs take no time'}"
    whole = option.spare_gpus == catalog.load("clusters", option.candidate.cluster).gpus_per_node
    nodes = f"{spares:,} spare {'node' if whole else 'instance'}{'' if spares == 1 else 's'}"
    if option.quote.owned:
        more = option.spare_dollars
        return f"{nodes}, {f'{dollars(more)} more to buy' if more else 'already among those bought'}"
    if not option.spare_dollars:
        return f"{nodes}, already among those rented"
    paid = option.terms
    bound = "" if paid is None else " for the full term" if paid == 1 else f" for {paid} full terms"
    them = "it" if spares == 1 else "them"
    return f"{nodes}, not billed; {dollars(option.spare_dollars)} more if you pay for {them}{bound}"


def taken(option: Option) -> str:
    """What is said of preemptions behind a number of failures."""
    return " with preemptions" if option.candidate.goodput.preempted else ""


def fullness(option: Option) -> list[str]:
    """A warning where the layout is predicted to fill the memory nearly to the last."""
    used = option.candidate.memory_fraction
    known = peak_error(used or 0.0, 1.0)
    if known.fitting >= TIGHT:
        return []
    told = f"{used:.1%} full (predicted); measured against {known.runs:,} published runs, {known.fitting:.0%} of such"
    return [f"memory      {told} jobs would fit: try it before you order, or keep some free with --margin {ROOM:.0%}"]


def saving(terms: Goodput) -> str:
    """How often the training is saved."""
    return "one checkpoint, at the end" if terms.checkpoints == 1 else f"a checkpoint every {duration(terms.interval)}"


def besides(made: Plan, option: Option, today: datetime.date) -> str:
    """Storage and egress in words; nothing where the provider states neither."""
    found = made.besides(option)
    told = []
    if found.storage is not None and found.storage_dollars is not None:
        checkpoints = (
            f"{found.kept:,} checkpoint{'' if found.kept == 1 else 's'} of {decimal_bytes(found.checkpoint_bytes)}"
        )
        rate = f"${found.storage.price:g} per GB-month, price of {dated(found.storage.date, today)}"
        tokens = found.token_bytes
        read = ", images and sound not counted," if tokens is None else f" and {decimal_bytes(tokens)} of tokens"
        told.append(f"storage {dollars(found.storage_dollars)} ({checkpoints}{read} at {rate})")
    if found.egress is not None and found.egress_dollars is not None:
        told.append(
            f"egress of one checkpoint {dollars(found.egress_dollars)} (price of {dated(found.egress.date, today)})"
        )
    return ", ".join(told)
