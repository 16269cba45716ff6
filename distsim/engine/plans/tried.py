"""Clusters of a size that a plan has timed and priced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from distsim.arrays import round_up
from distsim.engine.campaigns.prices import Quote, best
from distsim.engine.counted import Pool, Show
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.plans import plan as plans
from distsim.engine.plans.candidates import Place, Terms, answers, twins
from distsim.engine.plans.plan import Candidate, Option
from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.engine.plans.request import Request


class Tried:
    """Clusters of a size that were timed and priced."""

    def __init__(
        self, request: Request, model: LoadedModel, offered: Sequence[Quote], watch: Show | None, pool: Pool | None
    ) -> None:  # fmt: skip
        self.request, self.model, self.offered, self.watch, self.pool = request, model, offered, watch, pool
        self.places: list[Place] = []
        self.made: list[Candidate] = []
        self.quotes: dict[Place, list[Quote]] = {}
        """Of those that a layout fits."""
        self.refused: dict[Place, str] = {}
        """What is wrong with the options there."""

    def options(self, places: Sequence[Place]) -> list[Option]:
        """Options of some more. Raises where what is asked for allows no layout on any of them."""
        self.places += places
        told = answers(self.request.terms, self.model, places, self.watch, self.pool)
        self.refused |= {place: one.problem for place, one in told.items() if isinstance(one, DistsimError)}
        return self._options([one for one in told.values() if isinstance(one, Candidate)], self.request.terms)

    def again(self, places: Sequence[Place]) -> list[Option]:
        """Options of some that were tried, and of clusters like theirs, in the best of all layouts."""
        terms = replace(self.request.terms, whole=True)
        alike = twins(terms, places, [place for place in self.places if place in self.quotes])
        told = answers(terms, self.model, alike, self.watch, self.pool)
        return self._options([one for one in told.values() if isinstance(one, Candidate)], terms)

    def _options(self, made: Sequence[Candidate], terms: Terms) -> list[Option]:
        """Those of the best layout of each place, and of layouts that take more of racks where that is cheaper."""
        known = {(one.cluster, one.gpus): one for one in (*self.made, *made)}
        self.made = list(known.values())
        self.quotes |= {(one.cluster, one.gpus): best(self.offered, one.cluster, one.gpus) for one in made}
        found, fuller = self._priced(made), self._priced(self._fuller(made, terms))
        return plans.cheapest_first([*found, *(one for one in fuller if _cheaper(one, found))])

    def _priced(self, made: Sequence[Candidate]) -> list[Option]:
        return plans.options(made, self.request.tokens, self.quotes, self.request.facility)

    def _fuller(self, made: Sequence[Candidate], terms: Terms) -> list[Candidate]:
        """The fastest layouts that take more of each rack than those ``made``, where what these leave idle is paid."""
        paid: dict[int, list[Place]] = {}
        for one in made:
            if any(_pays_idle(one, quote) for quote in self.quotes[one.cluster, one.gpus]):
                paid.setdefault(one.domain_gpus, []).append((one.cluster, one.gpus))
        found = [one for used, places in paid.items() for one in self._taking(used + 1, places, terms)]
        return [*found, *self._fuller(found, terms)] if found else []

    def _taking(self, least: int, places: Sequence[Place], terms: Terms) -> list[Candidate]:
        """The fastest layouts that take so many accelerators of each rack."""
        terms = replace(terms, bounds=replace(terms.bounds, of_domain=least))
        try:
            told = answers(terms, self.model, places, None, self.pool)
        except DistsimError:  # there are none
            return []
        return [one for one in told.values() if isinstance(one, Candidate)]

    def more(self, places: Sequence[Place]) -> list[Option]:
        """Further options; none, and no error, where no layout fits."""
        try:
            return self.options(places)
        except DistsimError:
            return []

    def full(self, place: Place) -> bool:
        """Whether no layout fits there."""
        return place not in self.quotes and place not in self.refused

    @property
    def sizes(self) -> list[int]:
        """How many accelerators were tried."""
        return sorted({gpus for _, gpus in self.places})


def _pays_idle(one: Candidate, quote: Quote) -> bool:
    """Whether accelerators that groups of ranks leave idle in each rack are paid at a quote."""
    unit = quote.bought_together if quote.owned else quote.gpus_per_instance
    least = one.gpus if quote.owned else round_up(one.gpus, unit)
    return plans.billed_gpus(one, quote) > least or plans.whole_units(one, unit) > round_up(one.gpus, unit)


def _cheaper(option: Option, found: Sequence[Option]) -> bool:
    """Whether an option costs less, or asks for less to be paid, than those ``found`` at the same quote."""
    same = [
        one for one in found if one.quote == option.quote and (one.cluster, one.gpus) == (option.cluster, option.gpus)
    ]
    return all(option.dollars < one.dollars or option.payable_dollars < one.payable_dollars for one in same)
