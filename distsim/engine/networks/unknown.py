"""Notes on user-defined hardware of an unknown kind: what it is treated like."""

from __future__ import annotations

from distsim import catalog
from distsim.architectures import KIND, described
from distsim.errors import did_you_mean
from distsim.specs.accelerator import Accelerator
from distsim.specs.cluster import Cluster

SLIP = 0.7
"""How alike two names are of which one is the other misspelt."""


def unknown_links(chip: Accelerator, cluster: Cluster | None = None, gpus: int = 1) -> list[str]:
    """Notes on links that distsim does not know: the chip's own, its host's PCIe and, where ``gpus`` of them need one,
    the cluster's network."""
    beyond = cluster if cluster is not None and gpus > cluster.domain else None
    return list(filter(None, (_links(chip), _host(chip), _network(beyond))))


def unknown_architecture(chip: Accelerator) -> str:
    """What it is treated like that is of another architecture, or nothing."""
    own, like = chip.architecture, chip.treated
    if own != like:
        return f"{chip.name} has architecture {own} and is treated like {like}, as its preset says"
    if described(own):
        return ""
    if described(chip.generation):
        return f"die {own!r} of {chip.name} is unknown: treated like any of {chip.generation}"
    near = did_you_mean(own, catalog.names(KIND), SLIP)
    return (
        f"architecture {own!r} of {chip.name} is unknown{near and f' ({near})'}: attention and NCCL's tables are "
        "those of ampere, products without measurements reach the usual share of its peak, and nothing fitted to one "
        'architecture applies; to treat it like another, set e.g. treated_like = "blackwell" in its preset'
    )


def _links(chip: Accelerator) -> str:
    from distsim.engine.networks.links import NEWEST_LINK, class_name
    from distsim.engine.networks.network_classes import fabrics

    if chip.link is None or class_name(chip.link) in fabrics()["scale_up"]:
        return ""
    stated = f"{chip.link.kind} {chip.link.generation or 'of no stated generation'}"
    return f"links of {chip.name} ({stated}) are unknown: they reach the same share of their rate as {NEWEST_LINK}"


def _host(chip: Accelerator) -> str:
    from distsim.engine.networks.links import pcie_lanes

    if chip.host is None or chip.host.kind != "pcie" or chip.host.generation is None:
        return ""
    known = pcie_lanes()
    nearest = min(max(chip.host.generation, min(known)), max(known))
    if chip.host.generation == nearest:
        return ""
    return f"PCIe {chip.host.generation} of {chip.name} is unknown: cards transfer at the rate of PCIe {nearest}"


def _network(cluster: Cluster | None) -> str:
    from distsim.engine.networks.network_classes import described, network_class

    if cluster is None or cluster.network is None or described(name := cluster.network.link_class):
        return ""
    return f"network {name} of {cluster.name} is of an unknown class: timed as {network_class(name)[0]}"
