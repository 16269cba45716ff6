"""Price lists as quotes in dollars: who rents which accelerator at which rate, the cheapest that is not out of date."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from distsim import catalog
from distsim.arrays import round_up
from distsim.errors import DistsimError, did_you_mean
from distsim.formulas import money
from distsim.specs.cluster import Cluster
from distsim.specs.dates import age, dated, span
from distsim.specs.price import ALL_TERMS, MOST_PER_GPU_HOUR, OWNED, TERMS, Offer, Price, Term
from distsim.specs.rules import divisors

RESERVED_YEARS: dict[Term, int] = {"reserved-1y": 1, "reserved-3y": 3}
"""How long machines are paid for at a term, used or not; a reservation whose source is silent about it is not here."""
OWN = "own rate"
"""What stands for a provider where somebody states a rate."""
STALE_DAYS = 365
"""Quotes that are so much older than the newest known one are no longer reckoned with."""

HIGH_USD_PER_GPU_HOUR = 50.0
"""Of a rent that is told to be high: nearly three times the highest of any shipped list (18 for a GB300)."""


@dataclass(frozen=True)
class Quote:
    """One rate of one provider, in dollars per accelerator and hour."""

    provider: str
    gpu: str
    instance: str
    gpus_per_instance: int
    region: str
    term: Term
    usd_per_gpu_hour: float
    date: str
    source: str
    doubt: str = ""
    cluster: str = ""
    """The preset that describes the instance and its network."""
    bought_dollars: float = 0.0
    """Price of one accelerator with its share of system and network, of machines that are bought."""
    bought_together: int = 1
    """How many are sold together."""

    @property
    def owned(self) -> bool:
        """Whether the machines are bought, not rented."""
        return self.term == OWNED

    @property
    def whose(self) -> str:
        """The provider, with the term where it is not the usual one."""
        return self.provider if self.owned or self.term == "on-demand" else f"{self.provider} ({self.term})"

    @property
    def place(self) -> str:
        """Which instance it is of, unless the cluster is called so, and in which region."""
        known = self.instance.lower() == self.cluster.lower()
        return ", ".join(filter(None, ("" if known else self.instance, self.region)))

    def age(self, today: datetime.date) -> str:
        """How old the quote is; a dash for one's own rate."""
        return age(self.date, today) if self.of_day else "-"

    @property
    def of_day(self) -> str:
        """Its date; one's own rate has none, whatever day it is typed on."""
        return "" if self.provider == OWN else self.date

    def dated(self, today: datetime.date) -> str:
        """Its date with its age: ``price of 2026-09, up to 2 months old``; one's own rate has none."""
        return f"price of {dated(self.date, today)}" if self.of_day else "a rate of your own"

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, and more."""
        return {
            "provider": self.provider, "usd_per_gpu_hour": self.usd_per_gpu_hour, "date": self.of_day or None,
            "term": self.term, "instance": self.instance, "region": self.region, "source": self.source,
            **({"bought_usd_per_gpu": self.bought_dollars} if self.owned else {}),
        }  # fmt: skip


def high_rents(rents: Iterable[tuple[str, float]]) -> list[str]:
    """A note on each rent, told with whose it is, that may be a whole node's."""
    return [
        f"${rate:,.2f} per GPU and hour ({whose}) is far above all known rents: is it the price of a whole node?"
        for whose, rate in dict.fromkeys(rents) if rate > HIGH_USD_PER_GPU_HOUR
    ]  # fmt: skip


def term_of(word: str, known: Sequence[Term] = ALL_TERMS) -> Term:
    """The term a word means, of those that a command knows."""
    for term in known:
        if word == term:
            return term
    raise DistsimError(
        f"unknown price term {word!r}", did_you_mean(word, known),
        f"terms: {', '.join(known)}; or dollars per GPU-hour, alone and without a unit: 2.50",
    )  # fmt: skip


def own_rate(text: str, known: Sequence[Term]) -> float | None:
    """Dollars per accelerator and hour where a price is one's own; None where it names a term, as all ``known`` do."""
    try:
        rate = float(text.strip().removeprefix("$"))
    except ValueError:
        return None
    if text.strip().startswith("."):
        raise DistsimError(
            f"--price {text} may be what a shell left of a price with a $ before it",
            f"write 0{text}, or the whole price without the sign",
        )
    if not 0 < rate <= MOST_PER_GPU_HOUR:
        raise DistsimError(
            f"--price {text} is not a rate per GPU-hour", f"valid: more than 0, at most {MOST_PER_GPU_HOUR} USD",
            f"or a price term: {', '.join(known)}",
        )  # fmt: skip
    return rate


def refuse_both(text: str, providers: Sequence[str]) -> None:
    """Raise where a rate of one's own and price lists are asked for."""
    if providers:
        raise DistsimError(
            f"--price {text} and --provider {','.join(providers)} both set the price", "leave one of them out"
        )


def own_quotes(rate: float, clusters: Sequence[str]) -> list[Quote]:
    """A rate of one's own, as of today, for nodes of some clusters and for parts of one."""
    today = datetime.date.today().isoformat()
    found = []
    for cluster in clusters:
        spec: Cluster = catalog.load("clusters", cluster)
        gpu, sizes = catalog.load("gpus", spec.gpu).name, divisors(spec.gpus_per_node)
        found += [Quote(OWN, gpu, "", size, "", "on-demand", rate, today, "--price", "", cluster)
                  for size in sizes]  # fmt: skip
    return found


def terms_of(text: str) -> tuple[Term, ...]:
    """One term, several with commas, or all."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return ALL_TERMS
    return tuple(dict.fromkeys(map(term_of, words or [text])))


def price_lists(providers: Sequence[str] = ()) -> list[Price]:
    """The price lists of some providers (names or TOML files), or of all."""
    return [catalog.load("prices", name) for name in (providers or catalog.names("prices"))]


def quotes(lists: Sequence[Price], term: Term, doubtful: bool = False) -> list[Quote]:
    """Every rent of a term, in dollars; rows that their file doubts only when asked for."""
    found: list[Quote] = []
    if term == OWNED:
        return found
    for prices in lists:
        for offer in prices.offers:
            rate = prices.usd_per_gpu_hour(offer, term)
            if rate is not None and (doubtful or not offer.doubt):
                found.append(_quote(prices, offer, term, rate))
    return found


def recent(found: Sequence[Quote], days: float = STALE_DAYS) -> list[Quote]:
    """Quotes not much older than the newest one, or than today if that date lies in the future; a date given by a year
    counts as the middle of that year."""
    newest = today_at_most([one.date for one in found])
    return [one for one in found if newest - day(one.date) <= days]


def today_at_most(dates: Sequence[str]) -> float:
    """Ordinal of the newest of some stated dates, or today's if that lies in the future."""
    return min(max(map(day, dates), default=0.0), datetime.date.today().toordinal())


def terms_known(fits: Callable[[Quote], bool], providers: Sequence[str] = ()) -> list[Term]:
    """Terms at which some provider rents out what a quote is to fit."""
    lists = price_lists(providers)
    return [term for term in TERMS if any(map(fits, recent(quotes(lists, term))))]


def day(date: str) -> float:
    """Ordinal of a stated date, in the middle of the days that it can mean."""
    first, last = span(date)
    return (first.toordinal() + last.toordinal()) / 2


def _quote(prices: Price, offer: Offer, term: Term, rate: float) -> Quote:
    try:
        gpu = catalog.load("gpus", offer.gpu)
        cluster = offer.cluster or gpu.default_cluster or ""
        inside = catalog.load("gpus", catalog.load("clusters", cluster).gpu).name if cluster else gpu.name
    except DistsimError as error:
        raise DistsimError(error.problem, *error.hints, where=f"price list {prices.name}, {offer.instance}") from None
    if inside != gpu.name:
        raise DistsimError(
            f"the offer is for {gpu.name}, but its cluster {cluster} has {inside}",
            f"name a cluster with {gpu.name}, or leave it out: the usual one is {gpu.default_cluster or 'not known'}",
            where=f"price list {prices.name}, {offer.instance}",
        )
    where = (offer.instance, offer.gpus, offer.region)
    return Quote(prices.provider, gpu.name, *where, term, rate, offer.date, offer.source, offer.doubt, cluster)


def cluster_file(cluster: str) -> str:
    """The file that a cluster's name, alias or path means: files of one's own may have the name of a preset inside."""
    return os.path.realpath(catalog.path("clusters", cluster))


def covers(quote: Quote, gpus: int, cluster: Cluster) -> bool:
    """Whether a job gets its network at a quote: instances as large as the node, or as the job. ``cluster`` is the
    node where the quote names none. Slices of a pod have the pod's torus, however many hosts a row counts."""
    spec: Cluster = catalog.load("clusters", quote.cluster) if quote.cluster else cluster
    return spec.sliced or quote.gpus_per_instance >= min(gpus, spec.gpus_per_node)


def _hourly(quote: Quote, gpus: int) -> float:
    """Dollars an hour of the whole instances that so many accelerators take."""
    whole = round_up(gpus, 1 if quote.owned else quote.gpus_per_instance)
    return float(money.rent_dollars(whole, quote.usd_per_gpu_hour))


def best(candidates: Sequence[Quote], cluster: str, gpus: int) -> list[Quote]:
    """For each provider and term the quote to reckon with for a job on a cluster: whole nodes, the cheapest.

    A job of several nodes needs instances as large as the node whose network it counts on; a single accelerator's
    price, at which nobody sells the network, is no quote for it. Nobody rents out part of an instance: a job may leave
    accelerators of one idle, and pays for them, where nobody has as many at the term; slices there are of every size.
    """
    spec: Cluster = catalog.load("clusters", cluster)
    fitting = [one for one in candidates if one.cluster == cluster and covers(one, gpus, spec)]
    unit = gpus if spec.sliced else spec.gpus_per_node
    whole = [one for one in candidates
             if one.cluster and covers(one, gpus, spec) and gpus % min(one.gpus_per_instance, unit) == 0]  # fmt: skip
    if spec.sliced:
        fitting = [one for one in fitting if gpus % one.gpus_per_instance == 0]
    exact = {(one.gpu, one.term) for one in whole}
    fitting = [one for one in fitting if one in whole or (one.gpu, one.term) not in exact]
    chosen: dict[tuple[str, Term], Quote] = {}
    for one in sorted(fitting, key=lambda quote: (_hourly(quote, gpus), -day(quote.date))):
        chosen.setdefault((one.provider, one.term), one)
    return list(chosen.values())


def in_whole_units(gpus: int, used: int, domain: int, unit: int) -> int:
    """Accelerators in whole units (systems, racks, instances) of a job that takes so many ``used`` of each domain."""
    each = used * max(unit // domain, 1)
    full, rest = divmod(gpus, each)
    return int(full * round_up(each, unit) + round_up(rest, unit))
