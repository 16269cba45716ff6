"""What the accelerators of a search cost per hour: the cheapest known rent of as many, or a rate of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from distsim import catalog
from distsim.arrays import Number, ceil_div
from distsim.engine.campaigns.pace import campaign_pace
from distsim.engine.campaigns.prices import (
    RESERVED_YEARS,
    STALE_DAYS,
    Quote,
    cluster_file,
    covers,
    day,
    in_whole_units,
    own_rate,
    price_lists,
    quotes,
    recent,
    refuse_both,
    term_of,
    terms_known,
)
from distsim.engine.exchanges.reach import domain_gpus
from distsim.engine.jobs.resolve import Setup
from distsim.errors import DistsimError
from distsim.formulas import money
from distsim.last import while_same
from distsim.specs.cluster import Cluster
from distsim.specs.price import OWNED, TERMS


@dataclass(frozen=True)
class Wish:
    """Whose prices a search reckons with: a term of some providers (none named: of all), or a rate of one's own."""

    term: str = "on-demand"
    providers: tuple[str, ...] = ()
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True)
class Rent:
    """The rate for so many accelerators; whole instances are paid."""

    gpus: int
    billed_gpus: int
    usd_per_gpu_hour: float
    quote: Quote | None
    """None for a rate of the user's own."""
    note: str = ""

    @property
    def usd_per_hour(self) -> float:
        """Dollars per hour for all that is paid."""
        return float(money.rent_dollars(self.billed_gpus, self.usd_per_gpu_hour))

    def usd_per_million_tokens(self, tokens_per_second: Number) -> Number:
        """Dollars of a million tokens at the pace of campaigns, where benchmark steps train so many a second."""
        return money.million_tokens_dollars(self.usd_per_hour, tokens_per_second, campaign_pace())

    def committed_usd(self, seconds: float = 0.0) -> float | None:
        """What a reservation for so long costs over its whole terms; None where they are paid by the hour."""
        years = None if self.quote is None else RESERVED_YEARS.get(self.quote.term)
        if years is None:
            return None
        return float(money.reserved_dollars(self.billed_gpus, self.usd_per_gpu_hour, seconds, years))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``date`` is the price's, ``committed_usd`` are of one term."""
        told = {"provider": None, "date": None, "term": None} if self.quote is None else self.quote.to_dict()
        return {
            "gpus": self.gpus, "billed_gpus": self.billed_gpus, "usd_per_hour": self.usd_per_hour, **told,
            "usd_per_gpu_hour": self.usd_per_gpu_hour, "committed_usd": self.committed_usd(),
        }  # fmt: skip


def left_idle(rent: Rent | None, setup: Setup) -> str:
    """A note on a layout whose groups of ranks leave more of racks idle, where these are rented whole, than dollars
    count, or nothing."""
    unit = rent.quote.gpus_per_instance if rent and rent.quote else 1
    gpus, used, domain = int(setup.layout.gpus), domain_gpus(setup), setup.cluster.domain
    if rent is None or unit <= setup.cluster.gpus_per_node:
        return ""
    paid = in_whole_units(gpus, used, domain, unit)
    if paid <= rent.billed_gpus:
        return ""
    return (
        f"groups of ranks of the best layout take {used} of each {domain} accelerators: in whole instances of "
        f"{unit} that is {paid:,}, of which dollars count {rent.billed_gpus:,}; distsim plan counts all"
    )


def wish_for(price: str | None, providers: Sequence[str]) -> Wish:
    """What ``--price`` and ``--provider`` mean: a term, or dollars per accelerator and hour."""
    own = own_rate(price or "", TERMS)
    if own is None and price == OWNED:
        problem = "a search uses rental prices, not those of machines that are bought"
        raise DistsimError(problem, "use distsim plan --price owned")
    if own is None:
        return Wish(term_of(price or Wish.term, TERMS), tuple(providers))
    refuse_both(str(price), providers)
    return Wish(usd_per_gpu_hour=own)


def rents(wish: Wish, base: Setup, numbers: Sequence[int]) -> dict[int, Rent]:
    """The rent of each number of accelerators; an error where none is known."""
    if wish.usd_per_gpu_hour is not None:
        return {gpus: Rent(gpus, gpus, wish.usd_per_gpu_hour, None) for gpus in numbers}
    known = _known(wish.term, wish.providers)
    mine = [quote for quote in known if quote.gpu == base.accelerator.name]
    if not mine:
        whose = f" from {', '.join(wish.providers)}" if wish.providers else ""
        rented = terms_known(lambda quote: quote.gpu == base.accelerator.name, wish.providers)
        terms = [term for term in rented if term != wish.term]
        raise DistsimError(
            f"no {wish.term} price of {base.accelerator.name} is known{whose}",
            "give your own in dollars per GPU-hour: --price 2.50",
            f"known{whose} at this term: {', '.join(sorted({quote.gpu for quote in known})) or 'none'}",
            f"other terms: {', '.join(terms) or 'none'}",
        )
    return {gpus: _rent(mine, base, gpus) for gpus in numbers}


@while_same(lambda: (catalog.state("prices"), catalog.state("gpus"), catalog.state("clusters")), 8)
def _known(term: str, providers: tuple[str, ...]) -> tuple[Quote, ...]:
    return tuple(recent(quotes(price_lists(providers), term_of(term)), STALE_DAYS))


def _rent(mine: Sequence[Quote], base: Setup, gpus: int) -> Rent:
    """The cheapest: of a stated cluster's nodes, else of any with the accelerator, else of smaller instances."""
    cluster = base.cluster
    nodes = [quote for quote in mine if covers(quote, gpus, cluster)]
    own = [quote for quote in nodes if base.job.cluster and _is_of(quote, base)]
    offers = [(_billed(quote, gpus), quote) for quote in own or nodes or mine]
    best, quote = min(
        offers, key=lambda offer: (offer[0].usd_per_hour, not _is_of(offer[1], base), -day(offer[1].date))
    )
    return replace(best, note=_doubt(quote, base, bool(nodes)))


def _is_of(quote: Quote, base: Setup) -> bool:
    """Whether a quote is for the job's cluster: the same file, or for the usual nodes of an accelerator their name."""
    if not quote.cluster:
        return False
    if base.job.cluster:
        return cluster_file(quote.cluster) == cluster_file(base.job.cluster)
    spec: Cluster = catalog.load("clusters", quote.cluster)
    return spec.name == base.cluster.name


def _doubt(quote: Quote, base: Setup, whole: bool) -> str:
    """What is not as sure about a price: it is of other nodes, or of no whole ones."""
    name, missing = base.job.cluster or base.cluster.name, f"no {quote.term} price is known for"
    if not whole:
        return (
            f"{missing} whole nodes with {base.cluster.gpu}: using that of a smaller instance, which is not sold with "
            "a network between nodes"
        )
    if not quote.cluster or _is_of(quote, base):
        return ""
    if base.job.cluster:
        return f"{missing} nodes of {name}: using that of {quote.cluster}, whose network may differ"
    return (
        f"the cheapest price is for {quote.cluster}, but step times are for {name}, whose network may differ; "
        f"--cluster {quote.cluster} searches that one"
    )


def _billed(quote: Quote, gpus: int) -> Rent:
    size = quote.gpus_per_instance
    return Rent(gpus, int(ceil_div(gpus, size)) * size, quote.usd_per_gpu_hour, quote)
