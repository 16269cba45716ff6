"""Rents that a plan leaves out because they are of less than the node whose network its jobs use."""

from __future__ import annotations

from collections.abc import Sequence

from distsim import catalog
from distsim.engine.campaigns.prices import Quote, covers
from distsim.engine.plans.plan import Option


def partial_rents(known: Sequence[Quote], found: Sequence[Option]) -> list[str]:
    """A note for each accelerator that somebody rents out for less than the options that were ``found`` cost, but not
    in whole nodes."""
    least: dict[tuple[str, str], list[Quote]] = {}
    for option in found:
        quote = option.quote
        if quote.owned or not quote.cluster:
            continue
        node = catalog.load("clusters", option.cluster)
        lower = [one for one in known
                 if (one.gpu, one.term) == (quote.gpu, quote.term) and one.usd_per_gpu_hour < quote.usd_per_gpu_hour
                 and not covers(one, option.gpus, node)]  # fmt: skip
        kept = least.setdefault((quote.gpu, quote.term), lower)
        if len(lower) > len(kept):
            least[quote.gpu, quote.term] = lower
    return [_told(gpu, lower) for (gpu, _), lower in least.items() if lower]


def _told(gpu: str, lower: Sequence[Quote]) -> str:
    first = min(lower, key=lambda one: one.usd_per_gpu_hour)
    rents = "a lower rent" if len(lower) == 1 else f"{len(lower)} lower rents"
    return (
        f"{rents} of {gpu} left out, from ${first.usd_per_gpu_hour:,.2f} ({first.provider}): of fewer accelerators "
        "than a node, whose network the job needs; --price takes a rate of your own"
    )
