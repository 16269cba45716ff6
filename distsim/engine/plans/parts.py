"""Rents that a plan leaves out because they are of less than the node whose network its jobs use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distsim import catalog
from distsim.engine.campaigns.prices import Quote, covers
from distsim.engine.plans.plan import Option
from distsim.specs.price import Term
from distsim.units import least_to_most

Of = tuple[str, Term]
"""An accelerator at a term."""
NAMED = 4
"""More numbers of accelerators than that are told by the least and the most. Assumed."""


def partial_rents(known: Sequence[Quote], found: Sequence[Option]) -> list[str]:
    """A note for each accelerator that somebody rents out for less than the cheapest of the options that were ``found``
    cost for some number of them, but not in whole nodes; for smaller numbers it may be an option."""
    cheapest: dict[Of, dict[int, Option]] = {}
    for option in sorted(found, key=lambda one: one.quote.usd_per_gpu_hour):
        quote = option.quote
        if not quote.owned and quote.cluster:
            cheapest.setdefault((quote.gpu, quote.term), {}).setdefault(option.gpus, option)
    told = []
    for (gpu, term), sizes in cheapest.items():
        same = [one for one in known if (one.gpu, one.term) == (gpu, term)]
        lower = {size: left for size in sorted(sizes) if (left := _lower(same, sizes[size]))}
        told += [_told(gpu, lower)] if lower else []
    return told


def _lower(same: Sequence[Quote], option: Option) -> list[Quote]:
    """Rents below that of an option which are no quotes for it."""
    node = catalog.load("clusters", option.cluster)
    return [one for one in same if one.usd_per_gpu_hour < option.quote.usd_per_gpu_hour
            and not covers(one, option.gpus, node)]  # fmt: skip


def _told(gpu: str, lower: Mapping[int, Sequence[Quote]]) -> str:
    most = max(lower.values(), key=len)
    first = min((one for left in lower.values() for one in left), key=lambda one: one.usd_per_gpu_hour)
    rents = "a lower rent" if len(most) == 1 else f"{len(most)} lower rents"
    *some, last = (f"{size:,}" for size in lower)
    named = f"{', '.join(some)} and {last}" if some else last
    sizes = least_to_most(list(lower)) if len(lower) > NAMED else named
    return (
        f"{rents} of {gpu} left out, from ${first.usd_per_gpu_hour:,.2f} ({first.provider}), for {sizes} of them: of "
        "fewer accelerators than a node, whose network such a job needs; --price takes a rate of your own"
    )
