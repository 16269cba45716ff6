"""Prices of exchanges, each looked up once for all stages, layers and groups of layouts that share it."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy

from distsim.arrays import Number, distinct_columns, mark
from distsim.engine.exchanges.all_flows import of_call
from distsim.engine.exchanges.flows import Fixed, Flow
from distsim.engine.networks import pricing
from distsim.engine.networks.network import Network
from distsim.units import MIB

MOST_BYTES = 48 * MIB
"""Bytes of prices that are remembered, the latest used."""
MOST_NUMBERS = 4096
"""Exchanges with at most so many numbers are priced together: for small arrays calling an operation costs more than
its arithmetic."""
FEW_NUMBERS = 512
"""Exchanges with so few are sooner priced for all meshes than the meshes on which their prices differ are found."""
Key = tuple[Any, ...]


class Prices:
    """Prices by what is sent, by how many ranks, and how far apart they are."""

    def __init__(self) -> None:
        self.known: OrderedDict[Key, Fixed] = OrderedDict()
        self.size = 0
        self.announced: dict[int, tuple[Flow, Key]] = {}
        """Keys of the exchanges whose prices are asked for next, by identity."""

    def __call__(self, flow: Flow, network: Network) -> Fixed:
        if flow.fixed is not None:
            return flow.fixed
        announced = self.announced.get(id(flow))
        key = _key(flow, Marks()) if announced is None else announced[1]
        found = self.known.get(key)
        if found is None:
            return self._keep(key, _seconds([flow], network)[0])
        self.known.move_to_end(key)
        return found

    def together(self, flows: Sequence[Flow], network: Network) -> None:
        """Remember the prices of several exchanges, those of one pattern looked up at once."""
        marks = Marks()
        self.announced = {id(flow): (flow, _key(flow, marks)) for flow in flows if flow.fixed is None}
        if any(isinstance(one, numpy.ndarray) for one in (network.nic_rate, network.hop)):
            return
        wanted: dict[tuple[Any, ...], dict[Key, Flow]] = {}
        for flow, key in self.announced.values():
            if key not in self.known and any(isinstance(one, numpy.ndarray) for one in _numbers(flow)):
                lies = flow.span.group if network.torus_axes else ""  # which axes of a torus a group lies along
                kind = flow.pattern, lies, flow.span.ends is None, flow.span.all_at_once
                wanted.setdefault(kind, {})[key] = flow
        for some in wanted.values():
            for key, seconds in zip(some, _seconds(list(some.values()), network), strict=True):
                self._keep(key, seconds)

    def _keep(self, key: Key, seconds: Number) -> Fixed:
        found = self.known[key] = Fixed(seconds, 0, "", "")  # a search asks for nothing else
        self.size += getattr(seconds, "nbytes", 0)
        while self.size > MOST_BYTES and len(self.known) > 1:
            _, old = self.known.popitem(last=False)
            self.size -= getattr(old.seconds, "nbytes", 0)
        return found


class Marks:
    """What tells values apart; of an array that comes again, as most do, found once."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Key]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, numpy.ndarray):
            return value
        found = self.known.get(id(value))
        if found is None:
            found = self.known[id(value)] = value, mark(value)  # held, so that no other can take its place
        return found[1]


def _key(flow: Flow, marks: Marks) -> Key:
    span = flow.span
    ends = (None,) if span.ends is None else tuple(map(marks, span.ends))
    return (flow.pattern, marks(flow.bytes_logical), marks(span.ranks), marks(span.stride), marks(span.world),
            *ends, span.all_at_once, marks(flow.own_rate), *(marks(one.seconds) for one in flow.floors))  # fmt: skip


def _numbers(flow: Flow) -> tuple[Number, ...]:
    span = flow.span
    return flow.bytes_logical, span.ranks, span.stride, span.world, *(span.ends or ())


def _seconds(flows: Sequence[Flow], network: Network) -> list[Number]:
    """Seconds of one call of each of some exchanges of a pattern: each looked up once for all meshes on which it is the
    same, and small ones together."""
    columns = [distinct_columns(row) if _size(row) > FEW_NUMBERS else None for row in map(_numbers, flows)]
    rows = [
        _numbers(flow) if own is None else tuple(own.of(_numbers(flow)))
        for flow, own in zip(flows, columns, strict=True)
    ]
    few = [place for place, row in enumerate(rows) if _size(row) <= MOST_NUMBERS]
    found: dict[int, Number] = {}
    if len(few) > 1:
        found = dict(zip(few, _at_once(flows[few[0]], [rows[place] for place in few], network), strict=True))
    for place, row in enumerate(rows):
        if place not in found:
            found[place] = _of_row(flows[place], row, network)
    whole = (found[place] if own is None else found[place][..., own.places] for place, own in enumerate(columns))
    return [of_call(flow, seconds) for flow, seconds in zip(flows, whole, strict=True)]


def _size(row: Sequence[Number]) -> int:
    return math.prod(numpy.broadcast_shapes(*(numpy.shape(one) for one in row)))


def _at_once(first: Flow, rows: Sequence[Sequence[Number]], network: Network) -> list[Number]:
    """Seconds for the numbers of exchanges of the same pattern as the ``first``, priced as one array."""
    shapes = [numpy.broadcast_shapes(*map(numpy.shape, row)) for row in rows]
    ends = [0, *itertools.accumulate(map(math.prod, shapes))]
    places = [slice(*pair) for pair in itertools.pairwise(ends)]
    joined = [numpy.empty(ends[-1], numpy.result_type(*column)) for column in zip(*rows, strict=True)]
    for row, shape, place in zip(rows, shapes, places, strict=True):
        for whole, one in zip(joined, row, strict=True):
            whole[place].reshape(shape)[...] = one
    found = numpy.broadcast_to(_of_row(first, joined, network), joined[0].shape)
    return [found[place].reshape(shape) for shape, place in zip(shapes, places, strict=True)]


def _of_row(flow: Flow, row: Sequence[Number], network: Network) -> Number:
    """Seconds of the library for the numbers of an exchange, which are the flow's own or some like them."""
    size, ranks, stride, world, *ends = row
    span = flow.span._replace(ranks=ranks, stride=stride, world=world, ends=(ends[0], ends[1]) if ends else None)
    return pricing.remembered(flow.pattern, size, span.placed(network)).seconds
