"""Larger clusters than a deadline asks for: few tokens need few accelerators, but a large model needs their memory."""

from __future__ import annotations

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
    while more := [
        (cluster, 2 * gpus) for cluster, gpus in latest if 2 * gpus <= min(LARGEST_CLUSTER, _together(cluster))
    ]:
        added += priced(more)
        latest = [place for place in more if full(place)]
    return added


def _together(cluster: str) -> float:
    """The most accelerators of a cluster that work together."""
    most: float = catalog.load("clusters", cluster).most_gpus
    return most
