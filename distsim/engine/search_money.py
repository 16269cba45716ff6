"""What the accelerators of a search cost per hour: the cheapest known rent of as many, or a rate of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distsim import catalog
from distsim.arrays import ceil_div
from distsim.engine.prices import STALE_DAYS, Quote, price_lists, quotes, recent, term_of
from distsim.engine.resolve import Setup
from distsim.errors import DistsimError
from distsim.formulas import money
from distsim.specs.price import MOST_PER_GPU_HOUR, TERMS


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

    def usd_per_million_tokens(self, tokens_per_second: float) -> float:
        """Dollars of a million tokens."""
        return float(money.million_tokens_dollars(self.usd_per_hour, tokens_per_second))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``date`` is the price's."""
        told = {"provider": None, "date": None, "term": None} if self.quote is None else self.quote.to_dict()
        return {
            "gpus": self.gpus, "billed_gpus": self.billed_gpus, "usd_per_hour": self.usd_per_hour, **told,
            "usd_per_gpu_hour": self.usd_per_gpu_hour,
        }  # fmt: skip


def wish_for(price: str | None, providers: Sequence[str]) -> Wish:
    """What ``--price`` and ``--provider`` mean: a term, or dollars per accelerator and hour."""
    try:
        own = float((price or "").removeprefix("$"))
    except ValueError:
        return Wish(term_of(price or Wish.term), tuple(providers))
    if not 0 < own <= MOST_PER_GPU_HOUR:
        raise DistsimError(
            f"--price {price} is no rate per GPU and hour", f"valid: more than 0, at most {MOST_PER_GPU_HOUR} USD",
            f"or a term of known prices: {', '.join(TERMS)}",
        )  # fmt: skip
    if providers:
        raise DistsimError(
            f"--price {price} and --provider {','.join(providers)} both state a price", "leave one of them out"
        )
    return Wish(usd_per_gpu_hour=own)


def rents(wish: Wish, base: Setup, numbers: Sequence[int]) -> dict[int, Rent]:
    """The rent of each number of accelerators; an error where none is known."""
    if wish.usd_per_gpu_hour is not None:
        return {gpus: Rent(gpus, gpus, wish.usd_per_gpu_hour, None) for gpus in numbers}
    known = _known(wish.term, wish.providers)
    mine = [quote for quote in known if quote.gpu == base.accelerator.name]
    if not mine:
        whose = f" from {', '.join(wish.providers)}" if wish.providers else ""
        raise DistsimError(
            f"no {wish.term} price of {base.accelerator.name} is known{whose}",
            "state your own in dollars per GPU and hour: --price 2.50",
            f"known{whose}: {', '.join(sorted({quote.gpu for quote in known})) or 'none'}",
            f"other terms: {', '.join(term for term in TERMS if term != wish.term)}",
        )
    return {gpus: _rent(mine, base, gpus) for gpus in numbers}


@functools.lru_cache(maxsize=8)
def _known(term: str, providers: tuple[str, ...]) -> tuple[Quote, ...]:
    return tuple(recent(quotes(price_lists(providers), term_of(term)), STALE_DAYS))


def _rent(mine: Sequence[Quote], base: Setup, gpus: int) -> Rent:
    """The cheapest: of this cluster's nodes, else of other nodes with the same accelerator, else of single ones."""
    cluster = base.cluster

    def whole(quote: Quote) -> bool:
        spec = catalog.load("clusters", quote.cluster) if quote.cluster else cluster
        return quote.gpus_per_instance >= min(gpus, spec.gpus_per_node)

    nodes = [quote for quote in mine if whole(quote)]
    for found, doubt in (
        ([quote for quote in nodes if quote.cluster == cluster.name], ""),
        (nodes, f"nobody's {mine[0].term} price for nodes of {cluster.name} is known: that of {{}} is taken, whose "
                "network may differ"),
        (mine, f"nobody's {mine[0].term} price for whole nodes with {cluster.gpu} is known: that of a smaller "
               "instance is taken, at which nobody sells a network"),
    ):  # fmt: skip
        offers = [_billed(quote, gpus) for quote in found]
        if offers:
            best = min(offers, key=lambda rent: rent.usd_per_hour)
            assert best.quote is not None
            return Rent(gpus, best.billed_gpus, best.usd_per_gpu_hour, best.quote, doubt.format(best.quote.cluster))
    raise AssertionError("a price is known")


def _billed(quote: Quote, gpus: int) -> Rent:
    size = quote.gpus_per_instance
    return Rent(gpus, int(ceil_div(gpus, size)) * size, quote.usd_per_gpu_hour, quote)
