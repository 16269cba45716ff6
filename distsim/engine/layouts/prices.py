"""Prices of exchanges, each looked up once for all stages, layers and groups of layouts that share it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy

from distsim.arrays import FEW_COLUMNS, Number, by_column
from distsim.engine.exchanges.all_flows import of_call, price_of
from distsim.engine.exchanges.flows import Fixed, Flow
from distsim.engine.networks import pricing
from distsim.engine.networks.network import Network
from distsim.units import MIB

MOST_BYTES = 48 * MIB
"""Bytes of prices that are remembered, the latest used."""
FEW_BYTES = 512
"""Arrays up to this size are told apart by their bytes, larger ones by a digest."""
MOST_NUMBERS = 4096
"""Exchanges with at most so many numbers are priced together: for small arrays calling an operation costs more than
its arithmetic."""


class Prices:
    """Prices by what is sent, by how many ranks, and how far apart they are."""

    def __init__(self) -> None:
        self.known: OrderedDict[tuple[Any, ...], Fixed] = OrderedDict()
        self.size = 0

    def __call__(self, flow: Flow, network: Network) -> Fixed:
        if flow.fixed is not None:
            return flow.fixed
        key = _key(flow)
        found = self.known.get(key)
        if found is None:
            return self._keep(key, _seconds(flow, network))
        self.known.move_to_end(key)
        return found

    def together(self, flows: Sequence[Flow], network: Network) -> None:
        """Remember the prices of several exchanges, those of one pattern looked up at once."""
        if any(isinstance(one, numpy.ndarray) for one in (network.nic_rate, network.hop)):
            return
        wanted: dict[tuple[str, str, bool], dict[tuple[Any, ...], Flow]] = {}
        for flow in flows:
            if flow.fixed is None and (key := _key(flow)) not in self.known and _small(flow):
                lies = flow.span.group if network.torus_axes else ""  # which axes of a torus a group lies along
                wanted.setdefault((flow.pattern, lies, flow.span.ends is None), {})[key] = flow
        for some in wanted.values():
            for key, seconds in zip(some, _at_once(list(some.values()), network), strict=True):
                self._keep(key, seconds)

    def _keep(self, key: tuple[Any, ...], seconds: Number) -> Fixed:
        found = self.known[key] = Fixed(seconds, 0, "", "")  # a search asks for nothing else
        self.size += getattr(seconds, "nbytes", 0)
        while self.size > MOST_BYTES and len(self.known) > 1:
            _, old = self.known.popitem(last=False)
            self.size -= getattr(old.seconds, "nbytes", 0)
        return found


def _key(flow: Flow) -> tuple[Any, ...]:
    span = flow.span
    ends = (None,) if span.ends is None else tuple(_mark(end) for end in span.ends)
    return (flow.pattern, _mark(flow.bytes_logical), _mark(span.ranks), _mark(span.stride), _mark(span.world),
            *ends, _mark(flow.own_rate))  # fmt: skip


def _numbers(flow: Flow) -> tuple[Number, ...]:
    span = flow.span
    return flow.bytes_logical, span.ranks, span.stride, span.world, *(span.ends or ())


def _small(flow: Flow) -> bool:
    """Whether an exchange has few numbers, over so few meshes that none is looked up for others like it."""
    arrays = [one for one in _numbers(flow) if isinstance(one, numpy.ndarray)]
    shape = arrays[0].shape if len(arrays) == 1 else numpy.broadcast_shapes(*(one.shape for one in arrays))
    return bool(shape) and shape[-1] < FEW_COLUMNS and math.prod(shape) <= MOST_NUMBERS


def _at_once(flows: Sequence[Flow], network: Network) -> list[Number]:
    """Seconds of one call of each of some exchanges of a pattern, priced as one array."""
    rows = [numpy.broadcast_arrays(*_numbers(flow)) for flow in flows]
    size, ranks, stride, world, *ends = (
        numpy.concatenate([one.ravel() for one in column]) for column in zip(*rows, strict=True)
    )
    first = flows[0]
    pair = (ends[0], ends[1]) if ends else None
    span = first.span._replace(ranks=ranks, stride=stride, world=world, ends=pair)
    found = pricing.price(first.pattern, size, span.placed(network)).seconds
    parts = numpy.split(numpy.broadcast_to(found, size.shape), numpy.cumsum([row[0].size for row in rows[:-1]]))
    return [of_call(flow, part.reshape(row[0].shape)) for flow, part, row in zip(flows, parts, rows, strict=True)]


def _seconds(flow: Flow, network: Network) -> Number:
    """The price of one call, looked up once for all meshes on which it is the same."""
    span = flow.span

    def price(size: Number, ranks: Number, stride: Number, world: Number, own_rate: Number, *ends: Number) -> Number:
        own = span._replace(ranks=ranks, stride=stride, world=world, ends=ends or None)
        return price_of(flow._replace(span=own, bytes_logical=size, own_rate=own_rate), network).seconds

    return by_column(price, flow.bytes_logical, span.ranks, span.stride, span.world, flow.own_rate, *(span.ends or ()))


def _mark(value: Any) -> Any:
    """Tells values apart: a number is itself, an array its shape and its bytes, or a digest of many."""
    if not isinstance(value, numpy.ndarray):
        return value
    if value.nbytes <= FEW_BYTES:
        return value.shape, value.dtype.str, value.tobytes()
    import hashlib

    return value.shape, value.dtype.str, hashlib.blake2b(numpy.ascontiguousarray(value).data, digest_size=16).digest()
