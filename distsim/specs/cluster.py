"""One kind of node and the network between such nodes."""

import itertools
import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from distsim.formulas.collectives import RING
from distsim.specs.base import Sourced, Spec
from distsim.specs.limits import BYTE_LINKS, MOST_NIC_BYTES, MOST_NODE_GBPS, NIC_RATES
from distsim.specs.parts import Tier
from distsim.specs.quantity import (
    Count,
    MaybeByteRate,
    MaybeBytes,
    MaybeBytesPerSecond,
    MaybeChipWatts,
    MaybeCount,
    MaybeNicRate,
    MaybeWatts,
    Once,
    Seconds,
    refuse_bits,
)
from distsim.units import BITS_PER_BYTE, GIGA, decimal_bytes

FabricKind = Literal["nvswitch", "nvlink-mesh", "pcie", "xgmi", "ualink", "xelink", "torus", "ethernet", "hccs", "none"]
NetworkKind = Literal["ib", "roce", "efa", "ethernet", "sockets", "slingshot", "omnipath", "tcpx", "tcpxo", "dcn"]


class Fabric(Spec):
    """Links inside a scale-up domain; ``rate`` is one direction per accelerator, ``pair_rate`` between two of them."""

    kind: FabricKind
    rate: MaybeBytesPerSecond = None
    pair_rate: MaybeBytesPerSecond = None
    dimensions: Annotated[int | None, Once(Field(ge=1, le=3))] = None
    """Of a torus; each dimension has two links per chip."""
    bridged: Annotated[int | None, Once(Field(ge=2))] = None
    """Cards of a node that one bridge joins, at the rate of the accelerator's link; all others meet over the fabric."""
    sockets: Annotated[int | None, Once(Field(ge=1))] = None
    """CPUs, or switches below one, that cards on PCIe hang from; None: as many as servers usually have."""
    peers: bool = True
    """False where cards that could reach each other's memory over PCIe may not: virtual machines of clouds."""
    wrap: Annotated[int, Once(Field(ge=RING))] = RING
    """Chips along each axis of a torus from which on their ends are joined; a smaller slice is a mesh."""

    @model_validator(mode="before")
    @classmethod
    def _in_bytes(cls, stated: Any) -> Any:
        return refuse_bits(stated, BYTE_LINKS, "rate", "pair_rate")

    @model_validator(mode="after")
    def _rate_where_linked(self) -> Self:
        if self.kind != "none" and self.rate is None:
            raise ValueError(f'a {self.kind} fabric needs a rate; write e.g. rate = "450 GB/s" (one direction)')
        return self


class Network(Spec):
    """What joins nodes, stated per node: ``nics`` of ``nic_rate`` each, or ``node_rate``; one direction.

    ``hop`` is the effective latency of one network step, as solved from measured small-message floors.
    """

    kind: NetworkKind
    generation: str | None = None
    nics: MaybeCount = None
    nic_rate: MaybeNicRate = None
    node_rate: MaybeBytesPerSecond = None
    hop: Seconds | None = None
    tiers: tuple[Tier, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _in_bits(cls, stated: Any) -> Any:
        """Makers of NICs state bits: of many bytes, an eighth may be meant."""
        rate = stated.get("nic_rate") if isinstance(stated, dict) else None
        number, _, unit = rate.strip().partition(" ") if isinstance(rate, str) else ("", "", "")
        if unit not in ("GB/s", "GBps") or not number.replace(".", "", 1).isdigit():
            return stated
        bits = float(number) * BITS_PER_BYTE
        if MOST_NIC_BYTES < float(number) * GIGA <= NIC_RATES.most:
            hint = f"write {number} Gb/s, or {bits:g} Gb/s if bytes are meant"
            raise ValueError(f"nic_rate {rate!r} may be a slip, for NICs are stated in bits; {hint}")
        return stated

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if self.node_rate is None and (self.nics is None or self.nic_rate is None):
            raise ValueError("the rate of the network is not stated; write nics and nic_rate, or node_rate")
        if self.node_rate is not None and self.nic_rate is not None:
            raise ValueError("nic_rate and node_rate are both stated; keep one of them")
        return self

    @model_validator(mode="after")
    def _tiers_widen(self) -> Self:
        for near, far in itertools.pairwise(self.tiers):
            if far.nodes < near.nodes:
                raise ValueError(
                    f"tier {far.name} joins {far.nodes} nodes, fewer than the {near.nodes} of tier {near.name} below "
                    "it; list tiers from the nearest switches to the farthest"
                )
        return self

    @property
    def link_class(self) -> str:
        """Kind and generation in one word, such as ``ib-ndr`` or ``efa-v2``."""
        return f"{self.kind}-{self.generation}" if self.generation else self.kind

    @property
    def node_bytes_per_second(self) -> float:
        """All NICs of one node together, one direction."""
        if self.node_rate is not None:
            return self.node_rate
        assert self.nics is not None and self.nic_rate is not None
        return self.nics * self.nic_rate


class LocalStorage(Spec):
    """NVMe drives of one node; rates are what all drives together are rated for (formulas/drives.py: what of it is
    reached, and what one is rated for where nobody says)."""

    drives: MaybeCount = None
    capacity: MaybeBytes = None
    read_rate: MaybeByteRate = None
    write_rate: MaybeByteRate = None


USUAL_NODE = 8
"""Accelerators of a node that nothing describes: an HGX board's."""


class Cluster(Sourced):
    """Nodes of one kind and their network. ``gpu`` names an accelerator preset or its TOML file."""

    name: str
    aliases: tuple[str, ...] = ()
    provider: str | None = None
    notes: str = ""
    gpu: str
    gpus_per_node: Count
    domain: Count
    """Accelerators that reach each other over the fabric: the node's, or more in racks such as NVL72."""
    nodes: MaybeCount = None
    """How many nodes the cluster has, where it is one certain machine."""
    host_memory: MaybeBytes = None
    host_link_sharers: Count = 1
    """Accelerators behind one link to the host (a PCIe switch's), which copies of all of them share."""
    power: MaybeWatts = None
    """The most one node draws."""
    gpu_power: MaybeChipWatts = None
    """The limit under which its accelerators run, and ``power`` holds; None where they have all that they are rated
    for."""
    fabric: Fabric
    network: Network | None = None
    storage: LocalStorage | None = None

    @model_validator(mode="after")
    def _domain_is_whole(self) -> Self:
        if self.domain < self.gpus_per_node:
            raise ValueError(
                f"domain {self.domain} is less than the {self.gpus_per_node} accelerators of a node, and nothing says "
                f"what joins the parts of a node; write gpus_per_node = {self.domain} with its share of the NICs, or, "
                f'for cards that a bridge joins, [fabric] kind = "pcie" and bridged = {self.domain}'
            )
        if self.domain % self.gpus_per_node:
            whole = self.domain // self.gpus_per_node * self.gpus_per_node
            raise ValueError(
                f"domain {self.domain} is not a whole number of nodes of {self.gpus_per_node}; write domain = {whole}, "
                "or the gpus_per_node that it is made of"
            )
        return self

    @model_validator(mode="after")
    def _bridges_are_whole(self) -> Self:
        cards = self.fabric.bridged
        if cards is not None and self.fabric.kind != "pcie":
            raise ValueError(f"fabric.bridged applies to PCIe cards, not to a fabric of kind {self.fabric.kind}")
        if cards is not None and self.gpus_per_node % cards:
            raise ValueError(f"bridges of {cards} cards do not divide the {self.gpus_per_node} accelerators of a node")
        return self

    @model_validator(mode="after")
    def _network_exists(self) -> Self:
        rate = self.network.node_rate if self.network is not None else None
        each = 0.0 if rate is None else rate / self.gpus_per_node * BITS_PER_BYTE / GIGA
        if rate is not None and each > MOST_NODE_GBPS:
            raise ValueError(
                f"node_rate {decimal_bytes(rate, 'B/s')} is {each:,.0f} Gb/s for each accelerator, which no network "
                f"has; did you mean {rate / GIGA:g} Gb/s?"
            )
        return self

    @property
    def sliced(self) -> bool:
        """Whether it is a pod, whose torus joins nodes and is rented out in slices of any size."""
        return self.fabric.kind == "torus" and self.domain > self.gpus_per_node

    @property
    def most_gpus(self) -> float:
        """So many accelerators work together: those of one certain machine, or of one domain where no network joins
        several; else as many as somebody has."""
        most = math.inf if self.nodes is None else self.nodes * self.gpus_per_node
        return most if self.network is not None else min(most, self.domain)

    @property
    def network_bytes_per_second_per_gpu(self) -> float | None:
        """One accelerator's share of the node's NICs, one direction; None when no network is stated."""
        return None if self.network is None else self.network.node_bytes_per_second / self.gpus_per_node

    def adapted(self, gpus_per_node: int | None = None, network_bytes_per_second_per_gpu: float | None = None) -> Self:
        """The same kind of node with another count of accelerators or another network rate per accelerator.

        The rate per accelerator stays as it was unless a new one is given; a domain of one node stays one node.
        """
        count = gpus_per_node or self.gpus_per_node
        rate = network_bytes_per_second_per_gpu or self.network_bytes_per_second_per_gpu
        network = self.network
        if rate is not None and (count != self.gpus_per_node or network_bytes_per_second_per_gpu is not None):
            network = _with_rate(network, rate, count)
        domain = count if self.domain == self.gpus_per_node else self.domain
        return self.model_copy(update={"gpus_per_node": count, "domain": domain, "network": network})


def _with_rate(network: Network | None, rate_per_gpu: float, gpus_per_node: int) -> Network:
    """A network of one NIC's worth of ``rate_per_gpu`` for each accelerator, otherwise like ``network``."""
    update = {"nics": gpus_per_node, "nic_rate": rate_per_gpu, "node_rate": None}
    if network is None:
        return Network(kind="ethernet", nics=gpus_per_node, nic_rate=rate_per_gpu)
    return network.model_copy(update=update)
