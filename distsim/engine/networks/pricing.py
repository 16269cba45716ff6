"""The price of a collective on a network: the one function that memory-less callers, engines and reports share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from distsim.arrays import Number, maximum, take, where
from distsim.engine.networks import nccl
from distsim.engine.networks.crossing import WIRE
from distsim.engine.networks.link_factors import FAMILIES
from distsim.engine.networks.network import Factor, Group, Network, Priced
from distsim.errors import DistsimError, did_you_mean
from distsim.formulas import collectives as volumes

_LOW = "LL"  # the protocol of short messages, whose latency has a factor of its own
BUS: dict[str, Callable[[Number], Number]] = {
    "all_reduce": volumes.all_reduce_bus_factor,
    "all_gather": volumes.gather_bus_factor,
    "reduce_scatter": volumes.gather_bus_factor,
    "all_to_all": volumes.gather_bus_factor,
    "scatter": volumes.gather_bus_factor,
    "gather": volumes.gather_bus_factor,
}
OPS = tuple(WIRE)
_SPELLINGS = {"sendrecv": "send_recv", "alltoall": "all_to_all", "allreduce": "all_reduce", "allgather": "all_gather",
              "reducescatter": "reduce_scatter"}  # fmt: skip


def op_named(op: str) -> str:
    """The op a user means; nccl-tests' spellings are understood."""
    plain = op.lower().replace("-", "_").removesuffix("_perf")
    plain = _SPELLINGS.get(plain, plain)
    if plain not in WIRE:
        raise DistsimError(f"unknown collective {op!r}", did_you_mean(plain, OPS), f"collectives: {', '.join(OPS)}")
    return plain


def bus_factor(op: str, ranks: Number) -> Number:
    """Bus over algorithm bandwidth, as nccl-tests prints them; 1 for broadcast, reduce and send_recv."""
    return BUS[op](ranks) if op in BUS else 1.0


def price(op: str, size_bytes: Number, group: Group) -> Priced:
    """Seconds, algorithm and wire bytes of one call; sizes, ranks and rates may be arrays.

    ``size_bytes`` is the larger of a call's input and output on one rank. A group of one rank costs nothing.
    """
    if group.network.bridge is None:
        return _price(op, size_bytes, group)
    ways = zip(_price(op, size_bytes, group.on_bridge()), _price(op, size_bytes, group), strict=True)
    return Priced(*(where(group.bridged, near, far) for near, far in ways))


def _price(op: str, size_bytes: Number, group: Group) -> Priced:
    """The price over one kind of link inside a domain."""
    seconds, algorithm, protocol = least_seconds(op, size_bytes, _at_least_two(group))
    link = where(group.nodes > 1, group.network.inter, group.network.intra)
    alone = group.ranks <= 1
    return Priced(where(alone, 0.0, seconds), algorithm, protocol, WIRE[op](size_bytes, group.ranks), link)


_PRICES: dict[tuple[Any, ...], tuple[Any, Priced]] = {}
MOST_PRICES = 20_000  # are kept, then all are dropped: what a process that asks on and on may hold
_FACTORS = Network._fields.index("factors")


def remembered(op: str, size_bytes: Number, group: Group) -> Priced:
    """``price``, looked up where plain numbers come again: alike stages and layouts, sweeps of runs."""
    ranks, local, nodes, network, sharing, axes, bridged, fewest, bridges, apart = group
    told = (
        size_bytes, ranks, nodes, sharing, axes, bridged, fewest, bridges, apart, network.nic_rate, network.hop
    )  # fmt: skip
    if not all(isinstance(one, (int, float)) for one in told):
        return price(op, size_bytes, group)
    factors = network.factors  # known by identity: kept with the price, so that no other can take its place
    key = (op, size_bytes, ranks, local, nodes, sharing, axes, bridged, fewest, bridges, apart, id(factors),
           *network[:_FACTORS], *network[_FACTORS + 1 :])  # fmt: skip
    found = _PRICES.get(key)
    if found is None:
        if len(_PRICES) >= MOST_PRICES:
            _PRICES.clear()
        found = _PRICES[key] = (factors, price(op, size_bytes, group))
    return found[1]


def _at_least_two(group: Group) -> Group:
    """The group, with two ranks where it has one, whose formulas would divide by zero."""
    return group._replace(ranks=maximum(group.ranks, 2), local=where(group.ranks <= 1, 2, group.local))


def factor_of(group: Group, family: str) -> Factor:
    """Measured factors of a group: latency of its slowest kind of link; arrays where only some groups span nodes.

    ``bandwidth`` is that of the NICs where nodes are spanned; ``inside_factor`` gives the fabric's.
    """
    inside, across, many = inside_factor(group, family), across_factor(group, family), group.nodes > 1
    return Factor(*(where(many, far, near) for near, far in zip(inside, across, strict=True)))


def inside_factor(group: Group, family: str) -> Factor:
    """Measured factors of the links inside a domain."""
    return group.network.factors.get(_inside_key(group.network, family), Factor())


def across_factor(group: Group, family: str) -> Factor:
    """Measured factors of the network between domains."""
    return group.network.factors.get(_across_key(group.network, family), Factor())


def _inside_key(network: Network, family: str) -> str:
    """Whose factors hold inside a domain: those of its links, or of all links that nobody measured."""
    own = f"{network.inside}/{family}"
    return own if own in network.factors else f"other-intra/{family}"


def _across_key(network: Network, family: str) -> str:
    """Whose factors hold between domains."""
    own = f"{network.inter}/{family}"
    return own if own in network.factors else f"other-inter/{family}"


def factor_keys(family: str, group: Group) -> set[str]:
    """Whose factors the price of a family of collectives takes on one group of plain numbers."""
    if group.bridged:
        group = group.on_bridge()
    if group.ranks <= 1 or not group.network.factors:
        return set()
    inside = {_inside_key(group.network, family)} if group.local > 1 else set()
    return inside | ({_across_key(group.network, family)} if group.nodes > 1 else set())


def terms_of(op: str, size_bytes: float, group: Group) -> tuple[dict[str, Number], str]:
    """What the time of one call is made of where all numbers are plain, as arguments of ``call_seconds``, and the way
    that takes it."""
    group = _at_least_two(group.on_bridge() if group.bridged else group)
    found = list(_ways(op, size_bytes, group))
    one, terms = min(found, key=lambda way: volumes.call_seconds(*way[1]))
    names = ("latency", "latency_factor", "size_bytes", "bandwidth")
    return dict(zip(names, terms, strict=True)), " ".join(filter(None, (one.algorithm, one.protocol)))


def _ways(op: str, size_bytes: Number, group: Group) -> Iterator[tuple[Any, tuple[Number, Number, Number, Number]]]:
    """All ways to run an op, each with the arguments of ``call_seconds``."""
    family = FAMILIES[op]
    latency_factor = factor_of(group, family)
    rates = inside_factor(group, family).bandwidth, across_factor(group, family).bandwidth
    if group.network.backend in nccl.BACKENDS:
        found = nccl.candidates(op, size_bytes, group)
    else:
        from distsim.engine.networks import textbook

        found = textbook.candidates(op, size_bytes, group)
    for one in found:
        factor = latency_factor.low if one.protocol == _LOW else latency_factor.bulk
        yield one, (one.latency, factor, size_bytes, one.bandwidth(*rates))


def least_seconds(op: str, size_bytes: Number, group: Group) -> tuple[Number, Number, Number]:
    """The least time over all ways to run an op, with the algorithm and protocol that reach it."""
    best: Number = None
    chosen: Number = 0
    found = []
    for index, (one, terms) in enumerate(_ways(op, size_bytes, group)):
        found.append(one)
        seconds = volumes.call_seconds(*terms)
        if index == 0:
            best = seconds
            continue
        less = seconds < best
        best, chosen = where(less, seconds, best), where(less, index, chosen)
    return best, take([one.algorithm for one in found], chosen), take([one.protocol for one in found], chosen)
