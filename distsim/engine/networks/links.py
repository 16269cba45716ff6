"""Networks from presets: a GPU with its usual node, or a cluster, becomes the numbers that pricing needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.networks.link_factors import profiled
from distsim.engine.networks.network import Bridge, Factor, Network
from distsim.engine.networks.network_classes import (
    SAME_RATE,
    fabrics,
    network_class,
    stated_network,
    usual_network,
    with_nics,
)
from distsim.errors import DistsimError, did_you_mean
from distsim.formulas.collectives import RING
from distsim.specs.accelerator import of_generation
from distsim.specs.cluster import USUAL_NODE
from distsim.specs.limits import FASTEST_GBPS
from distsim.units import BITS_PER_BYTE, GIGA, MICROSECOND

NEWEST_LINK = "nvlink-5"
"""Whose share of the datasheet rate is taken for links that nobody described."""
USUAL_PCIE = 4
"""The generation of hosts that do not state it."""
BACKENDS = ("nccl", "rccl", "mpi", "gloo", "ici")


def link_rate(accelerator: Any, cluster: Any = None) -> float | None:
    """What each accelerator of a domain has of the links between them, one direction, as datasheets count; None: PCIe.

    The cluster's fabric says so; the accelerator alone does where there is no cluster, or none with a fabric.
    """
    fabric = cluster.fabric if cluster is not None else None
    linked = accelerator.link is not None and not accelerator.link.bridge
    if fabric is None or fabric.kind == "none":
        return float(accelerator.link.rate) if linked else None
    if fabric.kind == "pcie":
        return None
    if not linked:
        raise DistsimError(
            f"cluster {cluster.name} joins its GPUs by {fabric.kind}, but {accelerator.name} has no links for it",
            'write kind = "pcie" in its [fabric], or a [link] in the TOML of the gpu',
        )
    return float(fabric.rate)


def scale_up(accelerator: Any, cluster: Any = None) -> tuple[str, float, bool]:
    """Class, rate and switch of the links between the GPUs of one domain (PCIe where there is no other)."""
    stated = link_rate(accelerator, cluster)
    if stated is not None:
        name, known = _link_class(accelerator.link)
        return name, stated * known["share"], known["switch"]
    host = accelerator.host
    generation = host.generation if host and host.generation else USUAL_PCIE
    return f"pcie-{generation}", pcie_flow(accelerator, cluster.fabric if cluster is not None else None), False


def pcie_flow(accelerator: Any, fabric: Any = None) -> float:
    """Bytes per second of one direction that each card of a ring over PCIe sends to the next.

    A share of a card's lanes, and less where the ring crosses to the other CPU; where cards have no access to each
    other's memory, what passes host memory takes the lanes both ways. A slot (``fabric.rate``) may carry less.
    """
    known, host = fabrics()["pcie"], accelerator.host
    lanes = (host.rate if host else None) or of_generation(pcie_lanes(), USUAL_PCIE) * GIGA
    if fabric is not None and fabric.rate is not None:
        lanes = min(lanes, fabric.rate / known["share"])
    if (host is not None and not host.peer) or (fabric is not None and not fabric.peers):
        return float(lanes * known["without_peers"])
    sockets = (fabric.sockets if fabric is not None else None) or known["usual_sockets"]
    return float(lanes * known["share"] * (known["across_sockets"] if sockets > 1 else 1.0))


def pcie_lanes() -> dict[int, float]:
    """GB/s of one direction of a slot of 16 lanes, by the generation of PCIe."""
    return {int(one): float(rate) for one, rate in fabrics()["pcie"]["lanes"].items()}


def _link_class(link: Any) -> tuple[str, Mapping[str, Any]]:
    """Class of an accelerator's own links, and what is known of it, or else of the newest."""
    name = class_name(link)
    known = fabrics()["scale_up"]
    return name, known.get(name) or known[NEWEST_LINK]


def class_name(link: Any) -> str:
    """``nvlink-4``, or ``xgmi``, whose generations are alike."""
    return f"{link.kind}-{link.generation}" if link.kind == "nvlink" else str(link.kind)


def bridge_of(accelerator: Any, cluster: Any) -> Bridge | None:
    """What joins a few cards of each node, where the cluster says that something does."""
    cards = cluster.fabric.bridged if cluster is not None else None
    if cards is None:
        return None
    link = accelerator.link
    if link is None or not link.bridge:
        raise DistsimError(
            f"cluster {cluster.name} joins {cards} cards by a bridge, but {accelerator.name} has no links for one",
            "leave bridged out of its [fabric], or name another gpu",
        )
    name, known = _link_class(link)
    return Bridge(name, cards, link.rate * known["share"], fabrics()["pcie"]["between_bridges"])


def network_for(
    gpu: Any,
    gpus_per_node: int | None = None,
    internode_gbps_per_gpu: float | None = None,
    network: str | None = None,
    cluster: Any = None,
    backend: str | None = None,
    sharp: bool = False,
    profile: str | None = None,
) -> Network:
    """The network of a GPU (a preset's name, or its spec) in its usual node, or in ``cluster``; figures given here win.

    ``profile`` is a file that ``distsim calibrate --nccl-tests`` wrote; its factors win over the shipped ones.
    """
    _refuse_slips(gpus_per_node, internode_gbps_per_gpu)
    accelerator = catalog.load("gpus", gpu) if isinstance(gpu, str) else gpu
    traits = traits_of(accelerator)
    usual = cluster if cluster is not None else _usual_cluster(accelerator)
    per_node = gpus_per_node or (usual.gpus_per_node if usual else USUAL_NODE)
    rate = _nic_rate(usual, internode_gbps_per_gpu)
    domain = _ranks_of_domain(gpus_per_node, usual, cluster is not None)
    usually = _class_of(accelerator, usual, per_node, rate, internode_gbps_per_gpu, cluster is not None)
    links = _between(stated_network(network) if network else usually, rate, cluster, per_node)
    links |= _inside(accelerator, usual, per_node)
    library = _library(backend, traits.collectives)
    return Network(
        backend=library,
        generation=traits.tuning_row,
        domain=domain,
        factors=_factors(scale_up(accelerator, usual)[0], profile) if library in ("nccl", "rccl") else {},
        sharp=sharp,
        torus_axes=_axes(usual) if library == "ici" else 0,
        torus_wrap=usual.fabric.wrap if usual is not None else RING,
        tiers=() if cluster is None else _tiers(cluster),
        nic_gpus=_nic_gpus(usual),
        node=per_node,
        **links,
    )


def _inside(accelerator: Any, usual: Any, per_node: int) -> dict[str, Any]:
    """Fields of a network on the links within a domain."""
    intra, rate, switch = scale_up(accelerator, usual)
    rack = bool(usual) and usual.domain > usual.gpus_per_node
    pair = _pair_rate(accelerator, usual)
    mesh = tuple(fabrics()["cube_mesh"]["rings"]) if intra == "nvlink-2" and per_node <= 8 and not pair else ()
    return {
        "intra": f"{intra}-rack" if rack else intra, "intra_rate": rate, "switch": switch, "rings": mesh,
        "pair_rate": pair, "mesh_links": _mesh_links(intra, per_node, rate, pair),
        "bridge": bridge_of(accelerator, usual),
    }  # fmt: skip


def _between(name: str, rate: float, cluster: Any, per_node: int) -> dict[str, Any]:
    """Fields of a network on the links between domains, of a class at a rate; the hop is a cluster's where it was
    measured there."""
    name, known = network_class(with_nics(network_class(name)[0], rate))
    measured = cluster.network.hop if cluster is not None and cluster.network is not None else None
    copied = min(known.get("process", math.inf), known.get("node", math.inf) / per_node) * GIGA
    return {
        "inter": name, "nic_rate": min(rate * known.get("share", 1.0), copied),
        "hop": measured if measured is not None else known["hop"] * MICROSECOND,
        "two_node_tree": known.get("two_node_tree", True), "far_nics": known.get("far_nics", False),
        "taper": known.get("taper", 0.0), "ordered": known.get("ordered", True),
    }  # fmt: skip


def _refuse_slips(gpus_per_node: int | None, gbps: float | None) -> None:
    """Raise for counts and rates that no machine has."""
    if gpus_per_node is not None and gpus_per_node < 1:
        raise DistsimError(f"{gpus_per_node} GPUs per node", "give a whole number, at least 1")
    if gbps is not None and not 0 <= gbps <= FASTEST_GBPS:
        told = f"{gbps:.10g} Gb/s is not a valid network rate"
        raise DistsimError(told, f"give Gb/s per GPU, such as 400, at most {FASTEST_GBPS:,}")


def _tiers(cluster: Any) -> tuple[tuple[float, float], ...]:
    """Domains below each tier of a cluster's network, and how many times its uplinks are oversubscribed."""
    if cluster.network is None:
        return ()
    nodes = cluster.domain / cluster.gpus_per_node
    return tuple((tier.nodes / nodes, tier.oversubscription) for tier in cluster.network.tiers)


def _ranks_of_domain(per_node: int | None, usual: Any, named: bool) -> int:
    """GPUs that reach each other over the fabric: so many of each node, of a rack with all its nodes; where a node has
    fewer than that, so many of each rack."""
    if usual is None or (usual.domain == usual.gpus_per_node and not named):  # nodes of the user's own
        return per_node or (usual.gpus_per_node if usual else USUAL_NODE)
    if per_node is None:
        return int(usual.domain)
    if per_node > usual.domain:
        whole = "node" if usual.domain == usual.gpus_per_node else "rack"
        told = f"{per_node} GPUs per node, but a {whole} of {usual.name} has {usual.domain}"
        raise DistsimError(told, f"use at most {usual.domain}")
    return per_node * int(usual.domain // usual.gpus_per_node) if per_node <= usual.gpus_per_node else per_node


def _factors(intra: str, profile: str | None) -> Mapping[str, Factor]:
    """Measured factors by ``link/family``; links that nobody measured have those of the links they are like."""
    known, like = profiled(profile), fabrics()["scale_up"].get(intra, {}).get("like")
    if not like:
        return known
    found = {
        name.replace(like, intra, 1): one for name, one in known.items() if name.startswith((f"{like}/", f"{like}-"))
    }
    return {**found, **known}


def _mesh_links(intra: str, per_node: int, rate: float, pair: float) -> tuple[float, ...]:
    """Links that rings use by group size, where each two GPUs of a node have one of xGMI: an equal part of all."""
    links = tuple(fabrics()["xgmi_mesh"]["links"])
    alike = per_node == len(links) - 1 and math.isclose(pair * (per_node - 1), rate, rel_tol=0.05)
    return links if intra == "xgmi" and alike else ()


def _pair_rate(accelerator: Any, usual: Any) -> float:
    """What a library counts on between two GPUs whose cluster states the rate of their link."""
    stated = usual.fabric.pair_rate if usual is not None else None
    if not stated or accelerator.link is None or accelerator.link.bridge:
        return 0.0
    return float(stated * _link_class(accelerator.link)[1]["share"])


def _library(backend: str | None, usual: str) -> str:
    """The library asked for, or the accelerator's usual one."""
    name = (backend or usual).lower()
    if name not in BACKENDS:
        hint = f"known: {', '.join(BACKENDS)}"
        raise DistsimError(f"unknown backend {backend!r}", did_you_mean(name, BACKENDS), hint)
    return name


def _axes(usual: Any) -> int:
    """Dimensions of a TPU's torus; two where the preset does not say."""
    return int(usual.fabric.dimensions or 2) if usual is not None else 2


def _usual_cluster(accelerator: Any) -> Any:
    """The preset of the GPU's usual node, or None where none is shipped."""
    if accelerator.default_cluster is None:
        return None
    try:
        return catalog.load("clusters", accelerator.default_cluster)
    except DistsimError:
        return None


def _nic_rate(usual: Any, gbps: float | None) -> float:
    if gbps is not None:
        return gbps * GIGA / BITS_PER_BYTE
    rate = usual.network_bytes_per_second_per_gpu if usual is not None else None
    return float(rate or 0.0)


def _nic_gpus(usual: Any) -> float:
    """GPUs of a node for each of its NICs; one where nobody says how many these are."""
    nics = usual.network.nics if usual is not None and usual.network is not None else None
    return max(1.0, usual.gpus_per_node / nics) if nics else 1.0


def _class_of(accelerator: Any, usual: Any, per_node: int, rate: float, stated: float | None, named: bool) -> str:
    """Network class: the cluster's own when it was named, or no rate was stated but its own; else the usual one at the
    rate."""
    if usual is not None and usual.network is not None:
        own = math.isclose(rate, usual.network_bytes_per_second_per_gpu, rel_tol=SAME_RATE)
        if named or stated is None or own:
            return str(usual.network.link_class)
    return usual_network(accelerator.generation, per_node, rate * BITS_PER_BYTE / GIGA)
