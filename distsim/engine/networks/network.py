"""A group of ranks and the physical numbers of the network that joins them; everything may be an array."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from distsim.arrays import Number, ceil_div, maximum, minimum, where
from distsim.formulas.collectives import RING

ON_CHIP_NICS = "ethernet"
"""The kind of link whose ports are NICs of the chip itself (Gaudi); networks between domains have a class so named."""
NVLS_GENERATION = 2  # Hopper is the first whose switch reduces (NCCL 2.30.7, src/transport/nvls.cc)


def fullest(local: Number) -> Number:
    """Ranks of a group on the domain that holds most of them, where ``local`` is their mean: three on two nodes have
    two on one, whose links carry what the others send."""
    return ceil_div(local, 1)


class Factor(NamedTuple):
    """What measurement says of a link: multiples of predicted latency (LL; other protocols) and of bandwidth."""

    low: float = 1.0
    bulk: float = 1.0
    bandwidth: float = 1.0


class Bridge(NamedTuple):
    """A bridge that joins a few cards of a node: the class of its links, how many cards, one card's rate to all, and
    how many times a flow over PCIe rings carry that cross it only between bridges."""

    link: str
    cards: int
    rate: float
    between: float = 1.0


class Network(NamedTuple):
    """Hardware that a group of one job runs on. Rates are bytes per second of one GPU in one direction."""

    backend: str
    """nccl, rccl, mpi, gloo or ici: whose algorithms are priced."""
    generation: int
    """Row of NCCL's tables (specs/architecture.py, ``tuning_row``)."""
    intra: str
    """Class of the links inside a domain, such as ``nvlink-4``, ``pcie-4`` or ``none``."""
    intra_rate: float
    """What the library counts on inside a domain; 0 when a domain is one GPU."""
    switch: bool
    domain: int
    """GPUs that reach each other without a NIC."""
    inter: str
    """Class of the network between domains, such as ``ib-ndr``."""
    nic_rate: Number
    """One GPU's share of its node's NICs, at what the library reaches of the line rate; 0 when there is no network."""
    hop: Number
    """Effective seconds of one tree hop between nodes with a short message."""
    factors: Mapping[str, Factor] = {}
    """By ``link/family`` with family all_reduce, gather or direct."""
    rings: tuple[float, ...] = ()
    """Rings by group size where the links form a mesh without a switch (V100 cube mesh)."""
    pair_rate: float = 0.0
    """What the library counts on between two GPUs of a domain whose links go from each to each; 0 where a switch, or
    rings of a mesh, say more."""
    mesh_links: tuple[float, ...] = ()
    """Links of one GPU that rings use by group size, where links from each GPU to each are the library's channels
    (ncclTopoXGMISpeed of RCCL's topo.h)."""
    two_node_tree: bool = True
    far_nics: bool = False
    """True when GPUs reach their NIC through the CPU, which rules out the LL128 protocol between nodes."""
    ordered: bool = True
    """False where a NIC delivers in any order, so that what must come after a message waits until that has arrived."""
    taper: float = 0.0
    """Loss of direct-exchange bandwidth per doubling of nodes beyond two (dragonfly networks)."""
    sharp: bool = False
    torus_axes: int = 0
    """Dimensions of a TPU torus; 0 elsewhere."""
    torus_wrap: int = RING
    """Chips along an axis from which on its ends are joined."""
    tiers: tuple[tuple[float, float], ...] = ()
    """(domains below one switch group, oversubscription of its uplinks), lowest first."""
    bridge: Bridge | None = None
    """What joins cards that PCIe joins otherwise."""
    nic_gpus: float = 1.0
    """GPUs that share one NIC, where a node has fewer of these."""
    node: int = 0
    """GPUs of one node, of which a domain may be several (a rack); 0: the domain is one."""

    @property
    def driven(self) -> float:
        """GPUs' shares of NICs that messages of one GPU fill: the nearest NIC where GPUs share these, else its own."""
        return max(1.0, min(self.nic_gpus, self.domain))

    def sharing_of(self, senders: Number) -> Number:
        """What so many ranks of a domain that send to another at once have of a GPU's share of the NICs, as
        ``Group.sharing`` counts it."""
        return maximum(minimum(senders, self.domain) / self.domain, 1 / self.driven)

    @property
    def nvlink(self) -> bool:
        """True when all GPUs of a domain are joined by NVLink (or an equal of it)."""
        return self.intra != "none" and not self.intra.startswith("pcie")

    @property
    def inside(self) -> str:
        """What measured factors of the links inside a domain are kept under: their class, or where a network has the
        same one, a name of their own."""
        return f"on-chip-{self.intra}" if self.intra == ON_CHIP_NICS else self.intra

    @property
    def channelled(self) -> bool:
        """True where a library fills the links inside a domain by whole channels and copies what a ring brought last,
        as NCCL does. NICs on the chip (Gaudi) take any size and write and add up in the other's memory themselves."""
        return self.nvlink and self.intra != ON_CHIP_NICS


class Group(NamedTuple):
    """Ranks that take part in one collective: ``ranks`` in all, ``local`` of them in each of ``nodes`` domains.

    ``local`` is per domain of fast links, which is a node, or a rack such as NVL72. ``sharing`` counts the groups
    that use one GPU's share of the NICs at the same time (1: every group has its own rail; below 1: fewer ranks of a
    domain send than it has, so that each has more than its share).
    """

    ranks: Number
    local: Number
    nodes: Number
    network: Network
    sharing: Number = 1
    axes: Number = 0
    """Axes of a torus that the group lies along; 0: all."""
    bridged: Number = False
    """Whether one bridge joins all ranks."""
    fewest: Number = 0
    """Ranks on the domain that holds fewest of them, whose NICs all wait for; 0: as many on each."""

    bridges: Number = False
    """Whether the ranks, more than one bridge joins, are neighbours that fill bridges of one node."""
    apart: Number = 1
    """Domains from one of the group's to the next: 1 where they are neighbours, more where others lie between."""

    @property
    def least(self) -> Number:
        """Ranks on the domain that holds fewest."""
        return where(self.fewest > 0, self.fewest, self.local)

    @property
    def nics(self) -> Number:
        """GPUs' shares of NICs that the domain with fewest ranks sends through: its own, or as many as each of the
        other domains uses, where it has more of NICs that other GPUs would share."""
        others = (self.ranks - self.least) / maximum(self.nodes - 1, 1)
        return where(others > self.least, minimum(others, self.least * self.network.nic_gpus), self.least)

    @property
    def sharing_alone(self) -> Number:
        """The same where each rank sends to the next, or one to all: of every group on a domain only one rank sends to
        another, through as much of the NICs as the others leave and one message drives."""
        return self.sharing / minimum(self.least, self.network.driven)

    @property
    def near(self) -> Number:
        """Mean number of ranks on a rank's own domain, itself among them: one holds fewest, the others as many each."""
        rest = self.ranks - self.least
        return where(self.nodes > 1, (self.least**2 + rest**2 / maximum(self.nodes - 1, 1)) / self.ranks, self.ranks)

    def on_bridge(self) -> Self:
        """The group priced as a node of its own, joined by the bridge: each card has as many links to every other."""
        bridge = self.network.bridge
        assert bridge is not None
        rate = bridge.rate * (self.ranks - 1) / (bridge.cards - 1)
        joined = self.network._replace(intra=bridge.link, intra_rate=rate, domain=bridge.cards, bridge=None)
        return self._replace(
            local=self.ranks, nodes=1, network=joined, bridged=False, fewest=self.ranks, bridges=False
        )  # fmt: skip


def group_of(ranks: Number, ranks_per_node: Number, network: Network, sharing: Number = 1) -> Group:
    """A group that puts ``ranks_per_node`` ranks on each node, on as few domains as hold it: what is left over is on
    the last node; of racks, whose nodes may stay idle, as many on each.

    For a data-parallel group of stride tp, ``ranks_per_node`` is gpus_per_node // tp (at least 1). A rack-wide domain
    takes all ranks that fit: the caller gives the ranks per domain where the stride is larger than one.
    """
    per_domain = maximum(1, minimum(ranks, ranks_per_node))
    nodes = ceil_div(ranks, per_domain)
    bridged = network.bridge is not None and (ranks <= network.bridge.cards) & (nodes == 1)
    bridges = network.bridge is not None and fill_bridges(ranks, nodes, network.bridge)
    fewest = ranks / nodes if network.domain > network.node > 0 else ranks - (nodes - 1) * per_domain
    return Group(
        ranks, ranks / nodes, nodes, network, sharing, bridged=bridged, fewest=fewest, bridges=bridges
    )  # fmt: skip


def fill_bridges(ranks: Number, nodes: Number, bridge: Bridge) -> Number:
    """Whether neighbours fill more than one bridge of a node: their rings then cross PCIe only between bridges."""
    return (ranks > bridge.cards) & (ranks % bridge.cards == 0) & (nodes == 1)


def ring_oversubscription(group: Group) -> Number:
    """How much slower a ring or tree runs across tiers. One domain's worth of traffic leaves each group of switches, as
    much again for every other group of ranks whose domains lie between those of this one."""
    worst: Number = 1.0
    for below, over in group.network.tiers:
        spanned = (group.nodes - 1) * group.apart >= below
        slower = maximum(1.0, over * minimum(group.apart, below) / below)
        worst = maximum(worst, where(spanned, slower, 1.0))
    return worst


def direct_oversubscription(group: Group) -> Number:
    """How much slower an all-to-all runs across tiers: most of every domain's traffic leaves its group of switches. A
    message to one other rank is one to a neighbour."""
    worst: Number = 1.0
    for below, over in group.network.tiers:
        spanned = (group.nodes - 1) * group.apart >= below
        share = (group.nodes - maximum(below / group.apart, 1)) / maximum(group.nodes - 1, 1)
        worst = maximum(worst, where(spanned, maximum(1.0, over * share), 1.0))
    return worst


class Priced(NamedTuple):
    """One collective (or an array of them) with its price; names are arrays of strings where the choice varies."""

    seconds: Number
    algorithm: Any
    protocol: Any
    wire_bytes: Number
    """Bytes one rank sends, averaged over the group."""
    link: Any
    """Class of the slowest link on the way."""
