"""Micro-batches in flight by the bytes of their chunks, where the chunks of a stage are unequal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from distsim.arrays import Number, largest, maximum, plus, product, where
from distsim.engine.footprint.saved import kinds_saved_bytes
from distsim.engine.footprint.states import stored
from distsim.engine.footprint.weight_passes import head_waiting, kinds_waiting
from distsim.engine.jobs.chunks_held import Chunk, chunks_held
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.jobs.vocabulary import held_with_vocabulary
from distsim.engine.timelines.chunk_passes import Passes, Vector, chunk_passes, highest, weighed_by
from distsim.engine.timelines.schedule_shape import Flight, Flights
from distsim.specs.layout import Layout

Way = tuple[str, int]
"""A schedule and its chunks per stage."""


class Moments(NamedTuple):
    """Layers of each kind in flight, of each kind that wait, and heads that do, at each moment."""

    all: Sequence[Vector]
    split: Sequence[Vector]
    loss: Sequence[Vector]
    """Those at which the chunk with the output layer is held; all where the stage has none."""


def weighed(setup: Setup, *alike: Stage) -> Stage:
    """One stage for all that hold the same layers, as ``_weighed`` has it, with what is there besides where one
    micro-batch runs forward while another runs backward to hide what experts exchange. Layers that let go one by one
    are one more than otherwise, on a last stage less: there it is left out."""
    stage, kernels, layout = _weighed(setup, *alike), setup.kernels, setup.layout
    if setup.model.experts is None or not kernels.expert_overlap:
        return stage
    overlaps = (layout.ep > 1) & (layout.micro_batches > stage.in_flight)
    passes = where(overlaps, kernels.overlap_passes / layout.vpp, 0)
    layer = 0 if stage.head is not None else kernels.overlap_layers / max(stage.layer_count, 1)
    beside = where(overlaps & (layout.pp > 1), maximum(passes, layer), passes)
    flights = (tuple(one._replace(before=one.before + beside) for one in part) for part in stage.flights)
    late = tuple(one._replace(before=one.before + passes) for one in stage.at_loss)
    return replace(stage, in_flight=stage.in_flight + beside, flights=Flights(*flights), at_loss=late)


def _weighed(setup: Setup, *alike: Stage) -> Stage:
    """One stage for all that hold the same layers, with what any of them has in flight at most.

    Micro-batches count by their bytes: where chunks are unequal, each as often as the schedule holds it, and of two
    copies of the model those of both. Layers that are computed again count as if each chunk had its share of them, as
    Megatron recomputes the first ones of each chunk.
    """
    layout = setup.layout
    stage = _by_number([one.both() for one in alike])
    if not stage.layers or (isinstance(layout.pp, int) and layout.pp == 1):
        return stage
    ways = [way for way in _ways(layout) if stage.copies > 1 or way[1] > 1]  # one chunk is unlike no other
    held = {way: [chunks_held(setup, one, *way) for one in alike] for way in ways}
    if stage.copies == 1:
        held = {way: lists for way, lists in held.items() if any(map(_unequal, lists))}
    if not held:
        return stage

    def moments(way: Way, micro: int) -> Moments:
        name, vpp = way
        passes = (chunk_passes(name, layout.pp, micro, vpp, one.index) for one in alike)
        found = list(map(_moments, passes, held[way]))
        return Moments(*(highest(one for part in parts for one in part) for parts in zip(*found, strict=True)))

    return _with(setup, stage, *_tabled(layout, list(held), moments))


def _unequal(chunks: Sequence[Chunk]) -> bool:
    return len({chunk.layers for chunk in chunks}) > 1


def _by_number(stages: Sequence[Stage]) -> Stage:
    """The first with the most micro-batches that any has, where chunks are equal."""
    found = stages[0]
    for stage in stages[1:]:
        most = largest((found.in_flight, stage.in_flight))
        flights = found.flights.together(stage.flights) if found.flights.split else Flights((Flight(most),))
        versions = largest((found.weight_versions, stage.weight_versions))
        found = replace(found, in_flight=most, flights=flights, weight_versions=versions)
    return found


def _ways(layout: Layout) -> list[Way]:
    """The schedules of a layout, or of an array of layouts, each with its numbers of chunks."""
    if isinstance(layout.schedule, str) and isinstance(layout.vpp, int):
        return [(layout.schedule, layout.vpp)]
    import numpy

    schedule, vpp = numpy.broadcast_arrays(layout.schedule, layout.vpp)
    return list(dict.fromkeys(zip(schedule.ravel().tolist(), vpp.ravel().tolist(), strict=True)))


@functools.lru_cache(maxsize=8192)
def _moments(passes: Passes, chunks: Sequence[Chunk]) -> Moments:
    """What one stage holds of its chunks at the moments of which one is its peak; groups of a search ask the same."""
    sizes, heads = [chunk.layers for chunk in chunks], [(chunk.heads,) for chunk in chunks]
    head = next((place for place, chunk in enumerate(chunks) if chunk.heads), None)
    every = weighed_by(passes.all, sizes, heads)
    split = weighed_by(passes.split, sizes, heads) if passes.split else every
    if head is None:
        return Moments(every, split, every)
    return Moments(every, split, weighed_by([held for held in passes.all if held[0][head]], sizes, heads))


def _tabled(
    layout: Layout, ways: list[Way], moments: Callable[[Way, int], Moments]
) -> tuple[Number, list[list[list[Number]]]]:
    """1 where a layout runs in one of these ways, and the moments of each layout; where it has fewer than another its
    first is there again."""
    if isinstance(layout.micro_batches, int) and isinstance(layout.schedule, str) and isinstance(layout.vpp, int):
        found = moments(ways[0], layout.micro_batches)
        return 1, [list(map(list, part)) for part in found]
    import numpy

    micro, at = numpy.unique(layout.micro_batches, return_inverse=True)
    at = at.reshape(numpy.shape(layout.micro_batches))
    here = [(numpy.asarray(layout.schedule) == name) & (numpy.asarray(layout.vpp) == vpp) for name, vpp in ways]
    way = sum(place * is_it for place, is_it in enumerate(here))
    known = [moments(one, count) for one in ways for count in micro.tolist()]

    def part(vectors: Sequence[Sequence[Vector]]) -> list[list[Number]]:
        longest = max(map(len, vectors))
        table = numpy.array([[*one, *[one[0]] * (longest - len(one))] for one in vectors])
        index = way * len(micro) + at
        return [[table[index, moment, entry] for entry in range(table.shape[2])] for moment in range(longest)]

    listed = numpy.any(here, axis=0)
    return listed, list(map(part, zip(*known, strict=True)))


def _with(setup: Setup, stage: Stage, listed: Number, moments: list[list[list[Number]]]) -> Stage:
    """A stage with these moments, in whole stages by their bytes, where layouts are ``listed``."""
    scales = _Scales(stored(setup), stage)
    every, split, loss = ([scales.flight(one) for one in part] for part in moments)
    most, late = (where(listed, largest(one.before for one in part), stage.in_flight) for part in (every, loss))
    if not stage.flights.split:
        return replace(stage, in_flight=most, flights=Flights((Flight(most),)), at_loss=(Flight(late),))
    flights = Flights(_chosen(listed, every, stage.flights.all), _chosen(listed, split, stage.flights.split))
    return replace(stage, in_flight=most, flights=flights, at_loss=_chosen(listed, loss, stage.flights.all))


def _chosen(listed: Number, own: Sequence[Flight], other: Sequence[Flight]) -> tuple[Flight, ...]:
    """Moments of layouts that are listed, and those of others."""
    if isinstance(listed, int):
        return tuple(own)
    pairs = zip_longest(own, other)
    return tuple(Flight(*map(functools.partial(where, listed), a or own[0], b or other[0])) for a, b in pairs)


class _Scales:
    """Turns layers of each kind into whole stages, by what they keep and by what of them waits."""

    def __init__(self, setup: Setup, stage: Stage) -> None:
        self.layout, kinds = setup.layout, len(stage.layers)
        counts = [count for _, count in stage.layers]
        self.before: list[Number] = [1.0]
        if kinds > 1:
            kept = kinds_saved_bytes(setup, stage)
            self.before = [one / maximum(sum(kept), 1) for one in kept]
        self.before = [share / count for share, count in zip(self.before, counts, strict=True)]
        self.waiting: list[Number] = []
        if stage.flights.split:
            waits = [*kinds_waiting(setup, stage), head_waiting(setup, stage)]
            self.waiting = [one / maximum(sum(waits), 1) / n for one, n in zip(waits, [*counts, 1], strict=True)]

    def flight(self, moment: Sequence[Number]) -> Flight:
        """A moment in whole stages."""
        kinds = len(self.before)
        before = _sum(moment[:kinds], self.before)
        waiting = _sum(moment[kinds:], self.waiting) if self.waiting else 0
        return Flight(held_with_vocabulary(self.layout, before), waiting)


def _sum(numbers: Sequence[Number], shares: Sequence[Number]) -> Number:
    return functools.reduce(plus, map(product, numbers, shares), 0)
