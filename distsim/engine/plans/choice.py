"""Which options of a plan are worth a look: those within the limits, the Pareto front, the cheapest, fastest and
nearest. Days that differ by no more than two measurements of one layout would count as equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from distsim.engine.plans.layouts import ALIKE
from distsim.engine.plans.on_time import EVEN, SURE, days_of, share_within
from distsim.engine.plans.plan import Option
from distsim.errors import DistsimError
from distsim.units import DAY, dollars, duration

SHORT_DAYS = 2
"""Deadlines below that are missed by hours."""


def as_fast(found: Sequence[Option]) -> list[Option]:
    """The fastest of some options, with those whose days are the same within ``ALIKE``."""
    quickest = min((one.days for one in found), default=0.0)
    return [one for one in found if one.days <= quickest * (1 + ALIKE)]


def pareto(found: Sequence[Option]) -> list[int]:
    """Indices of the options that no other beats in both days and what has to be paid, fastest first: of those that
    are as fast as the fastest the cheapest; of what costs less than that the same again, and so on."""
    places = {id(one): index for index, one in enumerate(found)}
    front: list[int] = []
    left = list(found)
    while left:
        best = min(as_fast(left), key=lambda one: (one.payable_dollars, one.days))
        front.append(places[id(best)])
        left = [one for one in left if one.payable_dollars < best.payable_dollars]
    return front


def whole_terms(terms: int) -> str:
    """What is paid of a reservation, before ``owed``."""
    return "the full term is" if terms == 1 else f"{terms} full terms are"


@dataclass(frozen=True)
class Wish:
    """What the plan has to keep to; None asks for nothing. The budget holds for all that has to be paid: who reserves
    for a year owes the year, however short the run."""

    days: float | None = None
    dollars: float | None = None
    confidence: float = EVEN
    """Share of an option's runs that has to keep to the deadline."""

    def __post_init__(self) -> None:
        """A limit of nothing is a slip."""
        for name, value, most, unit in (("deadline", self.days, 36_500, "days"), ("budget", self.dollars, 1e12, "USD")):
            if value is not None and not 0 < value <= most:
                raise DistsimError(
                    f"a {name} of {value:g} {unit} is out of range", f"valid: more than 0, at most {most:,.0f} {unit}"
                )

    def to_dict(self) -> dict[str, Any]:
        """The limits with the fields of an option that are held against them."""
        return {
            "days": self.days, "dollars": self.dollars, "confidence": None if self.days is None else self.confidence,
            "compared": {"days": "days", "dollars": "payable_dollars", "confidence": "on_time"},
        }  # fmt: skip

    def met(self, option: Option) -> bool:
        """Whether an option keeps to both limits."""
        return (self.days is None or days_of(option, self.confidence) <= self.days) and self.affords(option)

    def affords(self, option: Option) -> bool:
        """Whether an option keeps to the budget."""
        return self.dollars is None or option.payable_dollars <= self.dollars

    def on_time(self, option: Option) -> float | None:
        """Share of an option's runs that keep to the deadline; None where there is none."""
        return None if self.days is None else share_within(option, self.days)

    def excess(self, option: Option) -> float:
        """How far an option is beyond the limits: 1 where one is missed by its double."""
        late = 0.0 if self.days is None else max(days_of(option, self.confidence) / self.days - 1, 0)
        dear = 0.0 if self.dollars is None else max(option.payable_dollars / self.dollars - 1, 0)
        return late + dear

    def lacks(self, option: Option) -> str:
        """What an option lacks, in words."""
        words = []
        if self.days is not None and (late := days_of(option, self.confidence) - self.days) > 0:
            sure = "" if self.confidence == EVEN else f" in {self.confidence:.0%} of its runs"
            words.append(f"{_late(late, self.days)} too late{sure}")
        if self.dollars is not None and option.payable_dollars > self.dollars:
            whole = "" if option.terms is None else f", because {whole_terms(option.terms)} owed"
            whole = ", because machines are paid in full" if option.quote.owned else whole
            words.append(f"{dollars(option.payable_dollars - self.dollars)} over budget{whole}")
        return ", ".join(words)


def _late(days: float, deadline: float) -> str:
    """By how much a deadline is missed."""
    small = deadline < SHORT_DAYS or days < 0.05
    return duration(days * DAY) if small else f"{days:,.1f} days"


def cheapest(found: Sequence[Option], wish: Wish) -> Option | None:
    """The cheapest option that keeps to the limits."""
    return min((one for one in found if wish.met(one)), key=lambda one: (one.dollars, one.days), default=None)


def surer(found: Sequence[Option], wish: Wish, chosen: Option) -> Option | None:
    """Where a chosen option may well be late, the cheapest of those that are not, or else the surest of all that are
    surer; None where it is sure itself, or none is surer."""
    share = wish.on_time(chosen)
    if share is None or share >= SURE:
        return None
    shares = {id(one): wish.on_time(one) or 0.0 for one in found if wish.met(one)}
    better = [one for one in found if shares.get(id(one), 0.0) > share]
    sure = [one for one in better if shares[id(one)] >= SURE]
    if sure:
        return min(sure, key=lambda one: (one.dollars, one.days))
    return max(better, key=lambda one: (shares[id(one)], -one.dollars), default=None)


def fastest(found: Sequence[Option], wish: Wish) -> Option | None:
    """The fastest option that keeps to the limits; of those as fast, the cheapest in what has to be paid."""
    quick = as_fast([one for one in found if wish.met(one)])
    return min(quick, key=lambda one: (one.payable_dollars, one.dollars, one.days), default=None)


def faster(one: Option, other: Option) -> bool:
    """Whether an option is faster than another by so much that it can be told."""
    return one.days * (1 + ALIKE) < other.days


def nearest(found: Sequence[Option], wish: Wish, count: int = 3) -> list[Option]:
    """The options that miss the limits by least, one per cluster and size; of those whose days are the same within
    ``ALIKE`` the cheapest first."""
    chosen: list[Option] = []
    left = sorted(found, key=wish.excess)
    while left and len(chosen) < count:
        first = left[0]
        alike = [one for one in left if not faster(first, one) and not faster(one, first)
                 and wish.excess(replace(one, days=first.days)) <= wish.excess(first)]  # fmt: skip
        best = min(alike, key=lambda one: (one.payable_dollars, one.dollars, one.days))
        chosen.append(best)
        place = best.candidate.cluster, best.candidate.gpus
        left = [one for one in left if (one.candidate.cluster, one.candidate.gpus) != place]
    return chosen
