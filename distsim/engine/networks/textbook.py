"""Ways to run a collective outside NCCL: MPI and Gloo by the textbook algorithms, TPUs on their torus."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from distsim import catalog
from distsim.arrays import Number, ceil_log2, each, maximum, minimum, where
from distsim.engine.networks.crossing import FREE, ROOTED
from distsim.engine.networks.nccl import Candidate
from distsim.engine.networks.network import Group, direct_oversubscription
from distsim.formulas import collectives as formulas
from distsim.last import while_same
from distsim.units import GIB, MICROSECOND

BACKENDS = "backends"
_UNIT = float(GIB)  # any size: slopes of straight lines are taken over it
_Seconds = Callable[[Number, Number, Number, Number], Number]
ALGORITHMS: dict[str, dict[str, _Seconds]] = {
    "all_reduce": {
        "ring": formulas.ring_all_reduce_seconds,
        "recursive_doubling": formulas.recursive_doubling_all_reduce_seconds,
        "recursive_halving_doubling": formulas.halving_doubling_all_reduce_seconds,
        "double_tree": formulas.double_tree_all_reduce_seconds,
    },
    "all_gather": {
        "ring": formulas.ring_all_gather_seconds,
        "recursive_doubling": formulas.recursive_doubling_all_gather_seconds,
    },
    "broadcast": {
        "tree": formulas.binomial_tree_seconds,
        "scatter_all_gather": formulas.scatter_all_gather_broadcast_seconds,
    },
    "all_to_all": {"direct": formulas.direct_exchange_seconds},
    "send_recv": {"direct": formulas.send_recv_seconds},
}
_LIKE = {"reduce_scatter": "all_gather", "reduce": "broadcast", "scatter": "all_to_all", "gather": "all_to_all"}
TO_ONE = ("send_recv", *ROOTED)  # each rank sends to the next, or one to all, as in a ring
PIPELINED = ("double_tree",)  # NCCL-like pipelining that MPI and Gloo do not have


@while_same(lambda: catalog.state("links", BACKENDS))
def profiles() -> dict[str, Any]:
    """Constants of the libraries, as ``presets/links/backends.toml`` states them."""
    data: dict[str, Any] = catalog.load("links", BACKENDS)
    return data


def candidates(op: str, size_bytes: Number, group: Group) -> list[Candidate]:
    """The ways a group's backend may run an op."""
    name = _LIKE.get(op, op)
    if group.network.backend == "ici":
        return [torus(name, size_bytes, group)]
    found = [
        _straight(algorithm, seconds, group.ranks, *link(group, op in TO_ONE or algorithm == "ring"))
        for algorithm, seconds in ALGORITHMS[name].items()
        if algorithm not in PIPELINED
    ]
    if name == "all_reduce":
        found.append(_straight("hierarchical", hierarchical, group))
    return found


def _straight(algorithm: str, seconds: Callable[..., Number], *place: Any) -> Candidate:
    """A candidate from a time that is a straight line in size, its first argument; ``place`` are those after it."""
    latency = seconds(0.0, *place)
    slope = maximum(seconds(_UNIT, *place) - latency, 1 / FREE)
    return Candidate(algorithm, "", latency, FREE, _UNIT / slope)


def link(group: Group, alone: bool = False) -> tuple[Number, Number]:
    """Seconds per message and bytes per second of the slowest link of a group; of one rank of a domain ``alone`` that
    sends to another."""
    local, far = _sides(group, group.sharing_alone if alone else group.sharing)
    many, both = group.nodes > 1, group.local > 1
    return where(many, far[0], local[0]), where(many, where(both, minimum(far[1], local[1]), far[1]), local[1])


def _sides(group: Group, sharing: Number) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """(hop, rate) inside a domain and between domains."""
    net, profile = group.network, profiles()[group.network.backend]
    inside = maximum(net.intra_rate * profile["local_share"], 1.0)
    nic = net.nic_rate / sharing / direct_oversubscription(group)
    across = maximum(nic * profile["share"], 1.0)
    return (profile["local_hop"] * MICROSECOND, inside), (net.hop * profile["hop_share"], across)


def hierarchical(size_bytes: Number, group: Group) -> Number:
    """Two-level all-reduce: every rank of a node takes its share across."""
    (local_hop, local_rate), (hop, rate) = _sides(group, group.sharing)
    return formulas.hierarchical_all_reduce_seconds(
        size_bytes, group.least, group.nodes, local_hop, local_rate, hop, rate
    )


@functools.lru_cache(maxsize=4096)
def _longest(chips: int, axes: int) -> int:
    """Chips along the longest axis of the box nearest to a cube (2 x 2 x 4, 2 x 4 x 4, 4 x 4 x 8, 16 x 20 x 28), or of
    the next power of two where that is nearer: slices of a pod have no other shapes."""
    if axes == 1:
        return chips
    sides = (side for side in range(1, int(chips ** (1 / axes)) + 2) if chips % side == 0)
    box = min(max(side, _longest(chips // side, axes - 1)) for side in sides)
    doublings = (chips - 1).bit_length()
    return min(box, 1 << -(-doublings // axes))


def torus(op: str, size_bytes: Number, group: Group) -> Candidate:
    """A TPU slice as near to a cube (or square) as its size allows, every axis of the group in use; several slices meet
    over their hosts' network, each chip with its share of what crosses. A whole slice smaller than a full cube (or
    square) has corners, whose chips have half of the links; a group inside one is laid out as a ring (MaxText's
    custom_mesh hybrid_ring_64x4)."""
    net, hop = group.network, profiles()["ici"]["hop"] * MICROSECOND
    along = where(group.axes > 0, group.axes, net.torus_axes)
    axes = minimum(along, maximum(1, ceil_log2(group.local)))
    side = each(lambda chips, along: _longest(round(chips), round(along)), group.local, axes)
    mesh = (axes >= net.torus_axes) & (group.local < net.torus_wrap**net.torus_axes)
    rate, wrap = net.intra_rate / (2 * net.torus_axes), where(mesh, FREE, formulas.RING)
    many, nic = group.nodes > 1, maximum(net.nic_rate, 1.0)
    far = where(many, net.hop, 0.0)
    if op == "send_recv":
        near = rate * where(side >= wrap, 2, 1)
        nic = maximum(net.nic_rate / group.sharing_alone, 1.0)
        return Candidate("torus", "", hop + far + 0 * group.ranks, where(many, minimum(near, nic), near), FREE)
    latency = axes * (side // 2) * hop + far
    if op == "all_to_all":
        # the longest axis is the narrowest place: a full one of a square pod is joined, whatever the others are
        apart = mesh & ((net.torus_axes > 2) | (side < net.torus_wrap))
        across = axes * where(apart | (side < formulas.RING), 1, 2) * rate / maximum(1.0, side * axes / 4)
        return Candidate("torus", "", latency, where(many, minimum(across, nic), across), FREE)
    trips = 2 if op == "all_reduce" else 1
    stream = formulas.torus_all_gather_seconds(_UNIT, group.local, axes, side, 0.0, rate, wrap)
    crossing = where(many, (group.nodes - 1) / group.nodes * _UNIT / (group.least * nic), 0.0)
    return Candidate("torus", "", trips * latency, _UNIT / (trips * (stream + crossing)), FREE)
