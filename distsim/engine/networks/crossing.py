"""What a collective sends, and which part of it leaves a domain, by the algorithm that it runs with."""

from collections.abc import Callable
from typing import Any

from distsim.arrays import Number, maximum, where
from distsim.engine.networks.network import Group
from distsim.formulas import collectives as volumes
from distsim.formulas import traffic as forms

WIRE: dict[str, Callable[[Number, Number], Number]] = {
    "all_reduce": volumes.all_reduce_wire_bytes,
    "all_gather": volumes.all_gather_wire_bytes,
    "reduce_scatter": volumes.all_gather_wire_bytes,
    "all_to_all": volumes.all_gather_wire_bytes,
    "broadcast": volumes.broadcast_wire_bytes,
    "reduce": volumes.broadcast_wire_bytes,
    "scatter": volumes.scatter_wire_bytes,
    "gather": volumes.scatter_wire_bytes,
    "send_recv": volumes.send_recv_wire_bytes,
}
CHAINED = ("broadcast", "reduce")
"""Operations whose ring is a chain: from the root to the last rank, or back."""
ROOTED = ("scatter", "gather")
"""Operations in which one rank sends to all others, or receives from them."""
PAIRWISE = ("all_to_all", *ROOTED)
"""Operations with a message for each pair of ranks, or for each with the root."""
TREES = ("tree", "nvls_tree", "double_tree", "hierarchical", "torus")
"""Algorithms that join domains like the nodes of a tree: each sends a vector up and down, or that in parts."""
FAR_FIRST = ("recursive_doubling", "recursive_halving_doubling")
"""Algorithms whose messages are largest, or as large, between ranks that are far apart."""
SWITCHED = ("sharp_direct", "sharp_chain")
FREE = 1e30
"""A bandwidth, in bytes per second, that never limits."""
LEAST = 1e-12
"""Of a byte: none leaves a domain."""


def crossing_fraction(op: str, algorithm: Any, group: Group) -> Number:
    """Share of what ranks send in the mean that leaves their domain; ``algorithm`` may be an array of names."""
    pairs = forms.direct_crossing_fraction(group.ranks, group.near, group.nodes)
    edges = forms.ring_crossing_fraction(group.local, group.nodes)
    tree = forms.tree_crossing_fraction(group.ranks, group.nodes)
    if op in PAIRWISE or op in CHAINED or op == "send_recv":
        return pairs if op in PAIRWISE else tree if op in CHAINED else edges
    found = where(_among(algorithm, TREES), tree, edges)
    found = where(_among(algorithm, FAR_FIRST), pairs, found)
    switched = forms.switched_crossing_fraction(group.ranks, group.nodes)
    return where(_among(algorithm, SWITCHED), switched, found)


def _among(algorithm: Any, names: tuple[str, ...]) -> Any:
    found: Any = False
    for name in names:
        found = found | (algorithm == name)
    return found


def line_bandwidth(op: str, algorithm: str, group: Group, across: Number) -> Number:
    """Algorithm bandwidth of ranks whose NICs carry ``across`` bytes per second for those of each domain; along a chain
    all domains but the last send the whole vector."""
    mean = WIRE[op](1.0, group.ranks) * crossing_fraction(op, algorithm, group) * group.ranks / group.nodes
    sent = 1.0 if op in CHAINED else mean
    return where(group.nodes > 1, across / maximum(sent, LEAST), FREE)
