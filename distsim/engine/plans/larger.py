"""Larger clusters than a deadline asks for: few tokens need few accelerators, but a large model needs their memory, to
fit at all or to be spared recomputation and pipelines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from distsim import catalog
from distsim.engine.plans.candidates import Place
from distsim.engine.plans.plan import Option
from distsim.specs.limits import LARGEST_CLUSTER


def up_to_memory(
    places: Sequence[Place], full: Callable[[Place], bool], priced: Callable[[Sequence[Place]], Sequence[Option]]
) -> list[Option]:
    """Options of twice as many accelerators, and twice those, of each cluster all of whose ``places`` are ``full``,
    which is when no layout fits there: until one does, or there would be more than plans try or than work together.
    ``priced`` gives the options of some places."""
    added: list[Option] = []
    empty = {cluster for cluster, gpus in places if not full((cluster, gpus))}
    latest = [(cluster, gpus) for cluster, gpus in dict(sorted(places)).items() if cluster not in empty]
    while more := [(cluster, 2 * gpus) for cluster, gpus in latest if 2 * gpus <= _most(cluster)]:
        added += priced(more)
        latest = [place for place in more if full(place)]
    return added


def up_to_cheapest(
    found: Sequence[Option], priced: Callable[[Sequence[Place]], Sequence[Option]]
) -> list[Option]:  # fmt: skip
    """The same of each cluster where half of the most that were ``found`` cost no less, or are not known to: until
    twice as many do not cost less."""
    costs, added = _costs(found), list[Option]()
    latest = [
        (cluster, gpus) for cluster, gpus in dict(sorted(costs)).items()
        if costs.get((cluster, gpus // 2), math.inf) >= costs[cluster, gpus]
    ]  # fmt: skip
    while more := [(cluster, 2 * gpus) for cluster, gpus in latest if 2 * gpus <= _most(cluster)]:
        new = priced(more)
        added += new
        costs |= _costs(new)
        latest = [(cluster, gpus) for cluster, gpus in more
                  if costs.get((cluster, gpus), math.inf) < costs[cluster, gpus // 2]]  # fmt: skip
    return added


def _costs(found: Sequence[Option]) -> dict[Place, float]:
    """The least dollars of each cluster of a size."""
    least: dict[Place, float] = {}
    for one in found:
        place = one.cluster, one.gpus
        least[place] = min(one.dollars, least.get(place, math.inf))
    return least


def _most(cluster: str) -> float:
    """The most accelerators of a cluster that plans try and that work together."""
    together: float = catalog.load("clusters", cluster).most_gpus
    return min(LARGEST_CLUSTER, together)
