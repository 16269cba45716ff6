"""From clusters whose step time is known to plans: days, dollars, energy, and which of them are worth a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distsim import catalog
from distsim.arrays import round_up
from distsim.engine.campaigns.prices import OWN, RESERVED_YEARS, Quote, in_whole_units
from distsim.engine.plans.energy import Draw
from distsim.engine.plans.goodput import Goodput
from distsim.engine.steps.intervals import LEVEL
from distsim.errors import DistsimError
from distsim.formulas import energy, money
from distsim.formulas.goodput import undisturbed_seconds
from distsim.specs.facility import Facility
from distsim.units import DAY

LONGEST_DAYS = 10 * 365.0
"""Plans that take longer are no plans."""
MOST_TOKENS = 1e18
"""More than anybody has: what is beyond is a slip of the keys."""


@dataclass(frozen=True)
class Candidate:
    """A cluster with a layout, and what its step takes; made by whoever can time a step."""

    cluster: str
    gpu: str
    gpus: int
    layout: Mapping[str, Any]
    step_seconds: float
    step_low: float
    step_high: float
    tokens_per_step: int
    goodput: Goodput
    draw: Draw | None
    """None where nobody states the accelerator's power."""
    breakdown: Mapping[str, float]
    """Seconds of each part of a step."""
    mfu: float | None = None
    """Of a step as benchmarks measure it, as ``step_seconds`` is."""
    global_batch: int | None = None
    """Sequences per step."""
    checkpoint_bytes: float = 0.0
    memory_fraction: float | None = None
    """Of what a program can have on the fullest accelerator."""
    spot: Goodput | None = None
    """Goodput on machines that are taken away, where it is known how often that is."""
    notes: tuple[str, ...] = ()
    """What of the job the accelerator does not have."""
    gpu_power: float | None = None
    """Watts of the limit under which the accelerators run."""
    framework: str = ""
    domain: int = 0
    """Accelerators that fast links join; 0 where it does not matter."""
    domain_gpus: int = 0
    """Of those as many as hold whole groups of ranks."""
    whole: bool = False
    """Whether its layout is the best of all that are tried, not only of the usual ones."""

    @property
    def leaves_idle(self) -> bool:
        """Whether its groups of ranks leave some accelerators of each domain idle."""
        return self.gpus > self.domain > self.domain_gpus > 0

    def under(self, term: str) -> Candidate:
        """The candidate on machines rented at a term: spot has a goodput of its own."""
        return replace(self, goodput=self.spot) if term == "spot" and self.spot is not None else self

    def share(self, seconds: float) -> float:
        """Share of all paid time that ``seconds`` of each step make up."""
        return seconds * self.goodput.fraction / self.step_seconds

    def days(self, tokens: float, step_seconds: float) -> float:
        """Calendar days for so many tokens, failures and pauses counted."""
        return float(undisturbed_seconds(tokens, self.tokens_per_step, step_seconds)) * self.goodput.stretch / DAY

    def work_seconds(self, tokens: float) -> float:
        """So many tokens without failures and pauses."""
        return float(undisturbed_seconds(tokens, self.tokens_per_step, self.step_seconds))


@dataclass(frozen=True, repr=False)
class Option:
    """One way to train: a candidate at one provider's rate."""

    candidate: Candidate
    quote: Quote
    days: float
    days_low: float
    days_high: float
    gpu_hours: float
    dollars: float
    watts: float | None
    """Mean draw of one accelerator with its share of the node, before cooling."""
    energy_kwh: float | None
    tonnes_co2e: float | None
    tokens: float

    def __repr__(self) -> str:
        one = self.candidate
        return (
            f"Option({one.gpus} x {one.gpu}, {self.quote.provider}: days={self.days:.4g}, dollars={self.dollars:,.0f})"
        )

    @property
    def gpu(self) -> str:
        """Its accelerator."""
        return self.candidate.gpu

    @property
    def gpus(self) -> int:
        """How many of them."""
        return self.candidate.gpus

    @property
    def cluster(self) -> str:
        """The preset or file of their nodes and network."""
        return self.candidate.cluster

    @property
    def step_seconds(self) -> float:
        """Time of one optimizer step, as a benchmark has it."""
        return self.candidate.step_seconds

    @property
    def tokens_per_dollar(self) -> float:
        """Tokens trained for one dollar of rent."""
        return self.tokens / self.dollars

    @property
    def arithmetic_dollars(self) -> float:
        """The part of the rent that no exchange, bubble, recomputation or failure takes."""
        return self.dollars * self.busy_share * self.candidate.share(self.candidate.breakdown.get("compute", 0.0))

    @property
    def busy_share(self) -> float:
        """Of the accelerators that are paid for, those that the run has ranks on."""
        return self.candidate.gpus / self.billed_gpus

    @property
    def mfu(self) -> float | None:
        """Of all hours that are paid: the step's over pace, failures and pauses, of accelerators with ranks."""
        step = self.candidate.mfu
        return None if step is None else step / self.candidate.goodput.stretch * self.busy_share

    @property
    def terms(self) -> int | None:
        """How many terms of a reservation the run takes, each paid whole; None for machines paid by the hour."""
        return self.terms_in(self.days)

    def terms_in(self, days: float) -> int | None:
        """The same if it took so many days instead."""
        years = RESERVED_YEARS.get(self.quote.term)
        return None if years is None else int(money.reserved_terms(days * DAY, years))

    @property
    def committed_dollars(self) -> float | None:
        """What a reservation of these machines costs over its whole terms, or what they cost to buy; None where they
        are paid by the hour."""
        if self.quote.owned:
            return self.bought_gpus * self.quote.bought_dollars
        years = RESERVED_YEARS.get(self.quote.term)
        if years is None:
            return None
        gpus, rate = self.billed_gpus, self.quote.usd_per_gpu_hour
        return float(money.reserved_dollars(gpus, rate, self.days * DAY, years))

    @property
    def payable_dollars(self) -> float:
        """What has to be paid to run this: a reservation or machines whole, else the rent of the run."""
        return self.dollars if self.committed_dollars is None else self.committed_dollars

    @property
    def bought_gpus(self) -> int:
        """Accelerators that have to be bought, which are sold by whole systems or racks."""
        return whole_units(self.candidate, self.quote.bought_together)

    @property
    def billed_gpus(self) -> int:
        """Accelerators whose hours are paid: more than the run uses where its groups leave some of a rack idle."""
        return billed_gpus(self.candidate, self.quote)

    @property
    def spare_gpus(self) -> int:
        """Accelerators of one spare: a node, or a smaller instance that holds the whole job."""
        one = self.candidate
        node: int = catalog.load("clusters", one.cluster).gpus_per_node
        return min(node, max(self.quote.gpus_per_instance, one.gpus))

    @property
    def spare_dollars(self) -> float:
        """What the spares would cost at the same rate, where whoever rents the others pays for them too: of a
        reservation over its whole terms. Of machines that are bought, or rented, by racks, further ones for what those
        that the run has cannot hold."""
        paid, together = self.billed_gpus, self.quote.gpus_per_instance
        if self.quote.owned:
            paid, together = self.bought_gpus, self.quote.bought_together
        spares = self.candidate.goodput.spares
        beyond = spares * self.spare_gpus - (paid - self.candidate.gpus) if spares else 0
        return float(round_up(max(beyond, 0), together)) * self.payable_dollars / paid

    @property
    def interruptions(self) -> float:
        """Failures that the run expects."""
        one = self.candidate
        return one.goodput.interruptions(one.work_seconds(self.tokens))

    def interval(self, value: float | None) -> dict[str, float] | None:
        """90% of a figure that grows with the days."""
        if value is None:
            return None
        low, high = (value * days / self.days for days in (self.days_low, self.days_high))
        return {"level": LEVEL, "low": low, "high": high}

    def dollars_at(self, days: float) -> float:
        """Rent if it took so many days instead."""
        return self.dollars * days / self.days

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, and more."""
        one = self.candidate
        return {
            "cluster": one.cluster, "gpu": one.gpu, "gpus": one.gpus, "billed_gpus": self.billed_gpus,
            "gpu_power": one.gpu_power,
            "framework": one.framework, "layout": dict(one.layout), "layouts": "all" if one.whole else "usual",
            "global_batch": one.global_batch, "spare_nodes": one.goodput.spares,
            "days": self.days, "days_interval": self.interval(self.days),
            "gpu_hours": self.gpu_hours, "gpu_hours_interval": self.interval(self.gpu_hours),
            "dollars": self.dollars, "dollars_interval": self.interval(self.dollars),
            "committed_dollars": self.committed_dollars, "payable_dollars": self.payable_dollars,
            "spare_dollars": self.spare_dollars, "pace": one.goodput.pace,
            "straggler_stretch": one.goodput.straggler_stretch,
            "energy_kwh": self.energy_kwh, "energy_kwh_interval": self.interval(self.energy_kwh),
            "tonnes_co2e": self.tonnes_co2e, "goodput": one.goodput.fraction,
            "tokens_per_dollar": self.tokens_per_dollar, "tokens_per_dollar_interval": {
                "level": LEVEL, "low": self.tokens / self.dollars_at(self.days_high),
                "high": self.tokens / self.dollars_at(self.days_low),
            }, "step_seconds": one.step_seconds, "step_mfu": one.mfu, "mfu": self.mfu,
            "memory_fraction": one.memory_fraction,
            "interruptions": self.interruptions,
            "price": self.quote.to_dict(),
        }  # fmt: skip


def options(
    candidates: Sequence[Candidate],
    tokens: float,
    quotes: Mapping[tuple[str, int], Sequence[Quote]],
    facility: Facility,
) -> list[Option]:
    """Every candidate at every quote for it, cheapest first; ``quotes`` are by cluster name and accelerators."""
    if not 0 < tokens <= MOST_TOKENS:
        raise DistsimError(f"{tokens:g} tokens cannot be planned", "give more than 0, e.g. --tokens 2T")
    found = [
        _option(rented, quote, tokens, facility)
        for one in candidates
        for quote in quotes.get((one.cluster, one.gpus), ())
        if (rented := one.under(quote.term)).days(tokens, one.step_seconds) <= LONGEST_DAYS
    ]
    return cheapest_first(found)


def billed_gpus(one: Candidate, quote: Quote) -> int:
    """Accelerators whose hours are paid: of whole instances, at a rate of one's own those that run (as in searches), of
    bought racks also those that groups of ranks leave idle, but not a last system's rest, which may do other work."""
    if not quote.owned and (quote.provider != OWN or one.leaves_idle):
        return whole_units(one, quote.gpus_per_instance)
    return one.gpus + (one.gpus // one.domain_gpus * (one.domain - one.domain_gpus) if one.leaves_idle else 0)


def whole_units(one: Candidate, unit: int) -> int:
    """Accelerators of a candidate in whole units (systems, racks, instances), as many in each domain as its groups of
    ranks take there."""
    if not one.leaves_idle:
        return int(round_up(one.gpus, unit))
    return in_whole_units(one.gpus, one.domain_gpus, one.domain, unit)


def cheapest_first(found: Sequence[Option]) -> list[Option]:
    """In order of the rent; of the same, the fastest first."""
    return sorted(found, key=lambda option: (option.dollars, option.days))


def _option(one: Candidate, quote: Quote, tokens: float, facility: Facility) -> Option:
    days, billed, draw = one.days(tokens, one.step_seconds), billed_gpus(one, quote), one.draw
    hours, busy = (float(money.gpu_hours(gpus, days * DAY)) for gpus in (billed, one.gpus))
    kwh = None if draw is None else draw.metered_kwh(busy, hours - busy, one.goodput.fraction, facility.pue)
    grid = facility.kg_co2e_per_kwh
    return Option(
        one, quote, days, one.days(tokens, one.step_low), one.days(tokens, one.step_high), hours,
        float(money.rent_dollars(hours, quote.usd_per_gpu_hour)),
        None if draw is None else draw.mean(one.goodput.fraction), kwh,
        None if grid is None or kwh is None else float(energy.emitted_tonnes(kwh, grid)), tokens,
    )  # fmt: skip
