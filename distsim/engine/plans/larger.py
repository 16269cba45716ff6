"""Larger clusters than a deadline asks for: few tokens need few accelerators, but a large model needs their memory, to
fit at all or to be spared recomputation and pipelines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from distsim import catalog
from distsim.engine.plans.candidates import Place
from distsim.engine.plans.choice import Wish
from distsim.engine.plans.plan import Option
from distsim.specs.limits import LARGEST_CLUSTER

WORTH = 0.2
"""Share of the days that twice as many accelerators have to save before more are tried for a deadline. Assumed."""


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
    found: Sequence[Option], wish: Wish, priced: Callable[[Sequence[Place]], Sequence[Option]]
) -> list[Option]:  # fmt: skip
    """The same of each cluster whose largest size that was ``found`` is its cheapest, if its arithmetic alone costs
    less than what is known to keep to the limits: until twice as many do not cost less."""
    costs, added = _costs(found), list[Option]()
    least: dict[str, float] = {}
    for (cluster, _), cost in costs.items():
        least[cluster] = min(cost, least.get(cluster, math.inf))
    known = min((one.dollars for one in found if wish.met(one)), default=math.inf)
    able = {one.cluster for one in found if one.arithmetic_dollars < known}
    latest = [place for place in dict(sorted(costs)).items() if place[0] in able and costs[place] <= least[place[0]]]
    while more := [(cluster, 2 * gpus) for cluster, gpus in latest if 2 * gpus <= _most(cluster)]:
        new = priced(more)
        added += new
        costs |= _costs(new)
        latest = [(cluster, gpus) for cluster, gpus in more
                  if costs.get((cluster, gpus), math.inf) < costs[cluster, gpus // 2]]  # fmt: skip
    return added


def up_to_deadline(
    found: Sequence[Option], wish: Wish, priced: Callable[[Sequence[Place]], Sequence[Option]]
) -> list[Option]:
    """The same where no option that was ``found`` keeps to the deadline: until one does, or twice as many of a cluster
    save too little."""
    timely, added = replace(wish, dollars=None), list[Option]()
    days = {(one.cluster, one.gpus): one.days for one in found}
    latest, late = dict(sorted(days)), not any(map(timely.met, found))
    while late and (more := [(name, 2 * gpus) for name, gpus in latest.items() if 2 * gpus <= _most(name)]):
        new = priced(more)
        added += new
        late = not any(map(timely.met, new))
        days |= {(one.cluster, one.gpus): one.days for one in new}
        latest = {
            name: gpus for name, gpus in more
            if days.get((name, gpus), math.inf) < (1 - WORTH) * days[name, gpus // 2]
        }  # fmt: skip
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
