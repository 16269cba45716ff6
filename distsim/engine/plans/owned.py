"""Machines that are bought, as quotes beside those of rent: what an hour in use costs their owner."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from distsim import catalog
from distsim.engine.campaigns.prices import Quote
from distsim.engine.jobs.hardware import limited
from distsim.engine.plans.energy import USUAL_UTILISATION, draw
from distsim.engine.plans.ownership import Ownership, ownership, system_for
from distsim.errors import DistsimError
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster
from distsim.specs.facility import Facility
from distsim.specs.price import OWNED, Purchase

BOUGHT = "purchase"
"""Stands where a provider's name does."""


def owned_quotes(
    clusters: Sequence[str], facility: Facility, lists: Sequence[str] = (), since: float = -math.inf,
    gpu_power: float | None = None,
) -> list[Quote]:  # fmt: skip
    """A quote for each accelerator that a system is sold with, in its usual node and in those of ``clusters`` that have
    it. Whoever buys gets whole systems; of these any number of nodes works together. ``since``, the ordinal of a day,
    leaves out older prices; ``gpu_power`` is a limit of each accelerator in watts."""
    found = {}
    within = {one: catalog.load("clusters", one).gpu for one in clusters}
    sold = [one.gpu for one in sold_systems(lists) if one.gpu]
    for name in dict.fromkeys((*catalog.names("gpus"), *sold, *within.values())):
        gpu: Accelerator = catalog.load("gpus", name)
        system = system_for(gpu.name, lists, since)
        if system is None:
            continue
        usual = gpu.default_cluster or ""
        asked = [one for one, inside in within.items() if catalog.load("gpus", inside).name == gpu.name]
        for place in dict.fromkeys((*([usual] if usual and catalog.knows("clusters", usual) else []), *asked)):
            found[place] = _quote(gpu, system, place, facility, gpu_power)
    return list(found.values())


def sold_systems(lists: Sequence[str] = ()) -> list[Purchase]:
    """All systems with a price, of named price lists and of those that are known."""
    files = dict.fromkeys((*lists, *catalog.names("prices")))
    return [one for name in files for one in catalog.load("prices", name).purchases if one.kind == "system"]


def owned_hour(
    gpu: Accelerator, cluster: Cluster, system: Purchase, facility: Facility, gpu_power: float | None = None
) -> Ownership:
    """What an accelerator of a system costs its owner under its power limit, with the electricity that a usual step
    takes; without, where nobody states what it draws."""
    power = draw(_under(gpu, cluster, gpu_power), cluster, USUAL_UTILISATION)
    watts, rated = (0.0, None) if power is None else (power.mean(1.0), power.rated or None)
    return ownership(system, 0.0, watts, facility, rated)


def _under(gpu: Accelerator, cluster: Cluster, watts: float | None) -> Accelerator:
    """The accelerator under a limit; as it is where it cannot have that one, for which a plan leaves it out."""
    with contextlib.suppress(DistsimError):
        return limited(gpu, cluster, watts)[0]
    return gpu


def _quote(gpu: Accelerator, system: Purchase, place: str, facility: Facility, gpu_power: float | None) -> Quote:
    cluster: Cluster = catalog.load("clusters", place)
    own = owned_hour(gpu, cluster, system, facility, gpu_power)
    return Quote(
        BOUGHT, gpu.name, system.item, cluster.gpus_per_node, "", OWNED, own.owned_per_hour, system.date, system.source,
        cluster=place, bought_dollars=own.price, bought_together=system.gpus or 1,
    )  # fmt: skip
