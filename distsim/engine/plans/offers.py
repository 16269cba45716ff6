"""The prices that a plan reckons with: rents of the terms asked for and machines to buy, without those out of date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from distsim import catalog
from distsim.engine.campaigns.prices import (
    Quote,
    cluster_file,
    day,
    own_quotes,
    price_lists,
    quotes,
    recent,
    today_at_most,
)
from distsim.engine.plans.owned import owned_quotes, sold_systems
from distsim.errors import DistsimError
from distsim.specs.price import OWNED

if TYPE_CHECKING:
    from distsim.engine.plans.request import Request


class Offers(NamedTuple):
    """Quotes of a plan."""

    every: list[Quote]
    """Of any age."""
    known: list[Quote]
    """Those that are not out of date."""
    since: float = float("-inf")
    """Ordinal of a day: prices of systems from before it are not reckoned with."""

    @property
    def left_out(self) -> int:
        """How many are too old."""
        return len(self.every) - len(self.known)

    def too_old(self, request: Request, alike: Sequence[str] = ()) -> DistsimError:
        """The error for when only prices that are too old would give an answer; ``alike`` are hints at similar clusters
        with prices."""
        terms, asked = " or ".join(request.price_terms), ", ".join(request.clusters or request.gpus)
        stated = request.price_days is not None
        why = f"--price-age {request.price_days:g}d" if stated else "the default price age of one year"
        return DistsimError(
            f"{why} leaves no {terms} price{f' of {asked}' if asked else ''}",
            *alike,
            f"give a longer --price-age{'' if stated else ', e.g. 3y'}, or prices of your own with --provider; "
            "distsim show prices lists the dates",
            "or buy machines: --price owned" if OWNED not in request.price_terms and for_sale(request) else "",
        )


def for_sale(request: Request) -> bool:
    """Whether what is asked for can be bought, at a price of any age."""
    gpus = {catalog.load("gpus", name).name for name in request.gpus}
    clusters = set(map(cluster_file, request.clusters))
    bought = owned_quotes(request.clusters, request.facility, request.providers)
    return any(
        (not gpus or one.gpu in gpus) and (not clusters or cluster_file(one.cluster) in clusters) for one in bought
    )


def _usual_clusters(request: Request) -> list[str]:
    """The usual nodes of the accelerators that are asked for, of which a rate of one's own needs some."""
    if not request.gpus:
        raise DistsimError(
            f"--price {request.own_rate:g} is a rate of one machine, but neither --gpu nor --cluster names one",
            f"e.g.: --gpu h100-sxm --price {request.own_rate:g}",
        )
    found = [catalog.load("gpus", name) for name in request.gpus]
    if nowhere := [one.name for one in found if one.default_cluster is None]:
        raise DistsimError(f"the usual node of {', '.join(nowhere)} is not known", "name a --cluster")
    return [one.default_cluster for one in found]


def offers(request: Request) -> Offers:
    """By default rents a year older than the newest are left out, and none of the prices to buy, which are few; a
    stated age holds for both, from the newest of both on. A rate of one's own is all there is where it is stated."""
    if request.own_rate is not None:
        own = own_quotes(request.own_rate, request.clusters or _usual_clusters(request))
        return Offers(own, own)
    lists = price_lists(request.providers)
    rents = [quote for term in request.price_terms for quote in quotes(lists, term)]
    buys = OWNED in request.price_terms
    power = request.terms.job.gpu_power
    asked = request.clusters, request.facility, request.providers
    bought = owned_quotes(*asked, gpu_power=power) if buys else []
    if request.price_days is None:
        return Offers([*rents, *bought], [*recent(rents), *bought])
    dates = [*(quote.date for quote in rents), *((one.date for one in sold_systems(request.providers)) if buys else ())]
    since = today_at_most(dates) - request.price_days
    kept = [quote for quote in rents if day(quote.date) >= since]
    if buys:
        kept += owned_quotes(*asked, since, power)
    return Offers([*rents, *bought], kept, since)
