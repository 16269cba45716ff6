"""Smaller clusters than a plan tries first, where a budget is stated and no deadline: fewer accelerators mostly cost
less, and take longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distsim import catalog
from distsim.engine.plans.candidates import Place
from distsim.engine.plans.choice import Wish
from distsim.engine.plans.plan import Option


def down_to_budget(
    found: Sequence[Option], wish: Wish, priced: Callable[[Sequence[Place]], Sequence[Option]]
) -> list[Option]:
    """Options of half as many accelerators, and half of those, of each cluster whose ``found`` options are all too
    dear: until one can be paid, nothing fits, or nothing ever will be cheap enough. ``priced`` gives the options of
    some places. A cluster goes down by itself, whatever others cost."""
    added: list[Option] = []
    latest = [options for options in _by_cluster(found).values() if not any(map(wish.met, options))]
    while places := [half for options in latest if (half := _half(options, wish))]:
        more = priced(places)
        added += more
        latest = [options for options in _by_cluster(more).values() if not any(map(wish.met, options))]
    return added


def _by_cluster(found: Sequence[Option]) -> dict[str, list[Option]]:
    made: dict[str, list[Option]] = {}
    for one in found:
        made.setdefault(one.candidate.cluster, []).append(one)
    return made


def _half(options: Sequence[Option], wish: Wish) -> Place | None:
    """Half of a cluster's fewest accelerators, if that is a node at least and their arithmetic alone can be paid: of
    all that a step does, only that does not get cheaper with fewer of them."""
    one = min(options, key=lambda one: (one.candidate.gpus, one.dollars)).candidate
    cheapest = min(option.arithmetic_dollars for option in options if option.candidate is one)
    half, odd = divmod(one.gpus, 2)
    small = half < catalog.load("clusters", one.cluster).gpus_per_node
    return None if odd or small or cheapest > (wish.dollars or 0.0) else (one.cluster, half)
