"""The accelerator and the nodes of a job, and the power limit that holds for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distsim import catalog
from distsim.engine.networks.link_factors import profiled
from distsim.engine.networks.unknown import unknown_architecture
from distsim.errors import DistsimError
from distsim.preset_kinds import DEFAULT_GPU
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster

if TYPE_CHECKING:
    from distsim.specs.power import PowerDraw


def hardware(filled: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Accelerator, Cluster, list[str]]:
    """The accelerator under its limit, its cluster, and notes: of an architecture that nobody knows, and of the limit.
    ``filled`` are options of a job, ``given`` specs that replace those that it names. A network profile is read here,
    too, so that a wrong one is told by commands that do not need it."""
    if filled["profile"]:
        profiled(filled["profile"])
    accelerator, cluster = _named(filled, given)
    accelerator, notes = limited(accelerator, cluster, filled["gpu_power"])
    return accelerator, cluster, [*filter(None, [unknown_architecture(accelerator)]), *notes]


def _named(filled: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Accelerator, Cluster]:
    if given.get("cluster"):
        cluster: Cluster = given["cluster"]
    elif filled["cluster"]:
        cluster = catalog.load("clusters", filled["cluster"])
    else:
        cluster = catalog.usual_cluster(filled["gpu"] or DEFAULT_GPU)
    if given.get("accelerator"):
        return given["accelerator"], cluster
    accelerator: Accelerator = catalog.load("gpus", filled["gpu"] or cluster.gpu)
    usual: Accelerator = catalog.load("gpus", cluster.gpu)
    if filled["cluster"] and filled["gpu"] and usual.name != accelerator.name:
        raise DistsimError(
            f"cluster {cluster.name} has {usual.name}, but gpu is {accelerator.name}",
            "give one of the two, or a cluster with that GPU",
        )
    return accelerator, cluster


def limited(chip: Accelerator, cluster: Cluster, watts: float | None) -> tuple[Accelerator, list[str]]:
    """The accelerator under a job's power limit, or else the cluster's; and a note where that is none."""
    limit = cluster.gpu_power if watts is None else watts
    if limit is None:
        return chip, []

    told = f"gpu_power {limit:g} W of cluster {cluster.name}" if watts is None else f"--gpu-power {limit:g} W"
    rated = chip.rated_power or chip.power
    if rated is None:
        raise DistsimError(
            f"{told}: the rated power of {chip.name} is not known",
            'state it in its TOML, e.g. power = "700 W", with its [source]',
        )
    idle = profile_of(chip).idle_fraction * rated
    if limit <= idle:
        raise DistsimError(
            f"{told} leaves no power to compute: {chip.name} draws {idle:g} W when idle",
            f"give more than {idle:g} W, up to {rated:g} W",
        )
    if limit < rated:
        return chip.model_copy(update={"power": limit, "rated_power": rated}), []
    notes = [f"{told} has no effect: {chip.name} is rated at {rated:g} W"] if limit > rated else []
    return chip.model_copy(update={"power": rated, "rated_power": None}), notes


def profile_of(accelerator: Accelerator) -> PowerDraw:
    """The power profile that the accelerator's preset names, or the one for all others."""
    profile: PowerDraw = catalog.load("power", accelerator.power_profile or "default")
    return profile
