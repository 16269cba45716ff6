"""The cluster of a measured run: the one that its row names, or the usual node of its GPU."""

from __future__ import annotations

from collections.abc import Iterable

from distsim import catalog
from distsim.engine.networks.links import pcie_lanes
from distsim.engine.networks.network_classes import fabrics
from distsim.errors import DistsimError
from distsim.interop.runs import MissingCell, Run
from distsim.interop.runs.chips import cluster_in
from distsim.interop.runs.machine_notes import has_bridges, machine_said, machine_words, over_sockets, slot_generation
from distsim.last import while_same
from distsim.specs.accelerator import of_generation
from distsim.specs.cluster import Cluster
from distsim.units import GIGA, parse

ROUNDING = 0.01
"""Of link rates as presets print them."""
PAIR = 2
"""Cards that a bridge of NVLink joins."""
_SOCKETS = {"kind": "sockets", "generation": None, "hop": None}
LARGEST_NODE = 16
"""Cards that one host has at most: NVIDIA's DGX-2, Google's a2-megagpu-16g."""


def cluster_of(run: Run) -> Cluster | None:
    """The machine that notes, publisher or the GPU's cell name, or the GPU's usual node, with the row's own count of
    GPUs and network rate where it gives them. Raises MissingCell where its nodes have no network and it has several."""
    found = _machine(run)
    return None if found is None else _joined(run, found)


def _machine(run: Run) -> Cluster | None:
    """One node of a row and its network, if it has one."""
    name = run.text("gpu")
    assert name is not None
    named = machine_said(run, name) or cluster_in(run) or _by_name(machine_words(run), name)
    try:
        usual: Cluster = catalog.load("clusters", named) if named else catalog.usual_cluster(name)
    except DistsimError:
        return None
    usual = _on_sockets(run, _in_slots(run, usual))
    per_node = run.count("gpus_per_node")
    if per_node is not None and per_node > usual.domain and _all_to_all(usual):
        per_node = usual.domain  # a server of several boards, whose links all go to neighbours on the board
    if named is None and usual.gpu_power and per_node not in (None, usual.gpus_per_node):
        usual = usual.model_copy(update={"gpu_power": None})  # boards of another machine
    rate = run.positive("internode_gbps_per_gpu")
    if per_node is None and rate is None:
        return _bridged(run, usual)
    return _bridged(run, usual.adapted(per_node, parse(f"{rate} Gb/s", "B/s") if rate else None))


def _joined(run: Run, cluster: Cluster) -> Cluster:
    """The cluster where something joins its nodes; else one node of all of a row's GPUs, if one may have so many and
    the row does not say how many a node has. Raises MissingCell for others: no link would carry their traffic."""
    gpus = run.count("n_gpus") or 1
    if cluster.network is not None or gpus <= cluster.domain:
        return cluster
    if run.count("gpus_per_node") is None and gpus <= LARGEST_NODE:
        return cluster.adapted(gpus)
    raise MissingCell(
        f"internode_gbps_per_gpu is blank: nodes of {cluster.gpus_per_node} {cluster.gpu} have no network"
    )


def assumed_node(run: Run) -> str:
    """A node that is taken to be larger than usual, since nothing joins two."""
    usual = _machine(run)
    grown = usual is not None and _joined(run, usual) is not usual
    return f"gpus_per_node is blank: assumed one node of {run.count('n_gpus')}" if grown else ""


def _by_name(words: Iterable[str], gpu: str) -> str | None:
    """The first preset with this GPU whose name is among the words; machines are named with GPUs that others have."""
    machines = _machines()
    found = (machines.get(word.lower()) for word in words)
    return next((name for name in found if name is not None and catalog.load("clusters", name).gpu == gpu), None)


@while_same(lambda: catalog.state("clusters"))
def _machines() -> dict[str, str]:
    """Clusters by what they may be called."""
    return {**catalog.aliases("clusters"), **{name.lower(): name for name in catalog.names("clusters")}}


def _in_slots(run: Run, cluster: Cluster) -> Cluster:
    """A node whose cards meet over PCIe, in slots of an older generation than theirs where notes say so."""
    generation = slot_generation(run) if cluster.fabric.kind == "pcie" else None
    if generation is None or cluster.fabric.rate is None:
        return cluster
    known = fabrics()["pcie"]
    rate = min(cluster.fabric.rate, of_generation(pcie_lanes(), int(generation)) * known["share"] * GIGA)
    return cluster.model_copy(update={"fabric": cluster.fabric.model_copy(update={"rate": rate})})


def _bridged(run: Run, cluster: Cluster) -> Cluster:
    """A node of two PCIe cards that a bridge joins where notes say so and the cards have links for one. Larger nodes
    that notes call bridged were no faster than others (three of MLPerf's), so that these stay as their presets are."""
    link = catalog.load("gpus", cluster.gpu).link
    if cluster.domain != PAIR or cluster.fabric.kind != "pcie" or cluster.fabric.bridged or not has_bridges(run):
        return cluster
    if link is None or not link.bridge:
        return cluster
    return cluster.model_copy(update={"fabric": cluster.fabric.model_copy(update={"bridged": PAIR})})


def _on_sockets(run: Run, cluster: Cluster) -> Cluster:
    """A machine whose nodes exchange by TCP where notes say so."""
    if cluster.network is None or not over_sockets(run):
        return cluster
    return cluster.model_copy(update={"network": cluster.network.model_copy(update=_SOCKETS)})


def _all_to_all(cluster: Cluster) -> bool:
    """Whether the links of an accelerator are used up by one to each other of its domain."""
    pair, rate = cluster.fabric.pair_rate, cluster.fabric.rate
    return pair is not None and rate is not None and rate <= pair * (cluster.domain - 1) * (1 + ROUNDING)
