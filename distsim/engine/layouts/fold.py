"""Folds a group of layouts with the functions of ``distsim memory`` and ``distsim step``, then walks it in blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy

from distsim import catalog
from distsim.arrays import largest, total
from distsim.engine.figures import Figures
from distsim.engine.footprint.buffers import fragmentation_bytes, overhead_bytes, slack_of, split_bytes
from distsim.engine.footprint.host import beyond_drives, beyond_host, node_bytes
from distsim.engine.footprint.moment import heights
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.layouts.likeness import corrections, recomputation
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.space import AGAIN, AXES, CHUNKS, MESH, MICRO, ZERO, Array, Group
from distsim.engine.layouts.variants import unread
from distsim.engine.memory import stage_moments
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.compose import compose, layout_numbers, stage_numbers
from distsim.engine.steps.work import Known, work_of
from distsim.engine.timelines.schedule_shape import Flight, Flights
from distsim.specs.layout import Layout

BLOCK_LAYOUTS = 65_536
"""Layouts whose time and memory are added up at once: their arrays stay in the cache."""
BLOCK_MESHES, BLOCK_SHARDINGS = 16, 8
"""Meshes of a block, and choices of ZeRO, below which other axes are cut instead."""

Place = tuple[slice, ...]
HOST, DRIVES, HELD = "host", "drives", "held"
"""What a stage's nodes hold of it, and what its GPU holds at all moments; all else are moments, of which the highest
is its peak."""


class Block(NamedTuple):
    """Seconds per step and bytes on the fullest GPU of neighbouring layouts of a group."""

    group: Group
    start: tuple[int, ...]
    """Place of its first layout along each axis."""
    seconds: Array
    peak: Array
    valid: Array


class Section(NamedTuple):
    """Neighbouring ZeRO choices of a group, whose numbers have length one along axes on which they do not differ."""

    zero: slice
    stages: list[dict[str, Any]]
    numbers: dict[str, Any]
    memory: list[dict[str, Any]]
    factors: dict[str, Any]
    """What measured runs correct times by, per kind of recomputation."""


@dataclass(frozen=True)
class Folded:
    """A group's ledger, folded over each part of the layout that matters to it, before parts are added up."""

    group: Group
    sections: list[Section]
    """Those that shard parameters, those that do not; and last all together."""
    timing: Mapping[str, Any]
    recomputation: Array

    def block(self, place: Place) -> Block:
        """Time and memory of the layouts at a place."""
        zero = place[ZERO]
        part = next(one for one in self.sections if one.zero.start <= zero.start and zero.stop <= one.zero.stop)
        inside = (*place[:ZERO], slice(zero.start - part.zero.start, zero.stop - part.zero.start), *place[ZERO + 1 :])
        worked = [cut(stage, inside) for stage in part.stages]
        seconds: Any = compose(worked, cut(part.numbers, inside), self.timing, apart=False)["other"]
        if part.factors:
            kinds = self.recomputation[place[AGAIN]]
            every = (*inside[:AGAIN], slice(None), *inside[AGAIN + 1 :])
            seconds = seconds * numpy.take(cut(part.factors, every)[""], kinds, axis=AGAIN)
        stages = [cut(stage, inside) for stage in part.memory]
        valid = cut({"": self.group.valid}, place)[""]
        for stage in stages:
            if HOST in stage:
                beyond = beyond_host(self.group.setup, stage.pop(HOST))
                valid = valid & ~numpy.asarray(beyond | beyond_drives(self.group.setup, stage.pop(DRIVES)))
        peak = largest([stage.pop(HELD) + largest(stage.values()) for stage in stages])
        shape = tuple(one.stop - one.start for one in place)
        whole = [numpy.broadcast_to(one, shape) for one in (seconds, peak, valid)]
        return Block(self.group, tuple(one.start for one in place), *whole)


@dataclass
class Inside:
    """What of a group no network is asked for: what is known of its work, and memory."""

    work: Known = field(default_factory=Known)
    memory: list[dict[str, Any]] = field(default_factory=list)


Shared = dict[tuple[int, int], Inside]
"""The same of all groups of a search, by GPUs and number; for searches on clusters that differ in their network."""


@catalog.settled()
def fold(group: Group, prices: Prices, inside: Inside | None = None) -> Folded:
    """Fold traffic, computation and memory of a group, the last two unless they are known."""
    setup, inside = group.setup, inside or Inside()
    stages = stage_numbers(work_of(setup, prices, prices.together, inside.work))
    numbers = layout_numbers(setup)
    inside.memory = memory = inside.memory or [_memory(setup, stage) for stage in distinct(build_stages(setup))]
    factors = corrections(group)
    whole = Section(slice(0, group.shape[ZERO]), stages, numbers, memory, {} if factors is None else {"": factors})
    parts = [
        Section(zero, [thin(stage, zero) for stage in stages], thin(numbers, zero),
                [thin(stage, zero) for stage in memory], _along(whole.factors, zero))
        for zero in sections(group)
    ]  # fmt: skip
    return Folded(group, [*parts, whole], timing_of(setup).model_dump(), recomputation(group))


def _memory(setup: Setup, stage: Stage) -> dict[str, Any]:
    """A stage's peak in parts: what ZeRO shards, and the moments that grow with micro-batches in flight or do not."""
    figures = Figures()
    parts, held, saved, moments = stage_moments(setup, stage, figures)
    hosts = {}
    if setup.offload:
        needed = node_bytes(setup, held, saved.leaving, stage.in_flight)
        hosts = {HOST: needed.memory, DRIVES: needed.drives}
    tops = heights(moments, slack_of(setup), split_bytes(setup, stage))
    return {
        **hosts,
        HELD: total(*parts.values(), overhead_bytes(setup, figures),
                    fragmentation_bytes(setup, parts["buffers"], figures)),
        **{f"moments {place}": top for place, top in enumerate(tops)},
    }  # fmt: skip


def sections(group: Group) -> list[slice]:
    """Neighbouring ZeRO choices that shard parameters, or do not."""
    shards = group.setup.layout.zero.ravel() >= 3
    edges = [0, *(numpy.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(shards)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def _along(values: Mapping[str, Any], zero: slice) -> dict[str, Any]:
    return cut(values, (slice(None), slice(None), zero, slice(None), slice(None)))


def thin(values: Mapping[str, Any], zero: slice) -> dict[str, Any]:
    """Arrays at some ZeRO choices, with length one along an axis where they are constant; numbers where all are."""
    found = {}
    for name, value in _along(values, zero).items():
        if isinstance(value, numpy.ndarray):
            for axis, size in enumerate(value.shape):
                ends = (0,) * axis, (0,) * (value.ndim - axis - 1)
                if size > 1 and value[*ends[0], 0, *ends[1]] == value[*ends[0], -1, *ends[1]]:  # mostly not
                    first = value[(slice(None),) * axis + (slice(0, 1),)]
                    if (value == first).all():
                        value = first
            value = value.item() if value.size == 1 else value
        found[name] = value
    return found


def distinct(stages: list[Stage]) -> list[Stage]:
    """One of all stages that hold the same layers in the same order (which tells those that are computed again), with
    the most micro-batches that any of them has in flight."""
    found: dict[tuple[Any, ...], Stage] = {}
    for stage in stages:
        key = tuple(
            (
                one.embedding is None,
                one.order,
                tuple((block.name, count) for block, count in one.layers),
                one.head is None,
            )
            for one in (stage, stage.mirror)
            if one is not None
        )
        first = found.setdefault(key, stage)
        if stage is not first:
            most = largest((first.in_flight, stage.in_flight))
            flights = first.flights.together(stage.flights) if first.flights.split else Flights((Flight(most),))
            versions = largest((first.weight_versions, stage.weight_versions))
            found[key] = replace(first, in_flight=most, flights=flights, weight_versions=versions)
    return list(found.values())


def cut(values: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """The parts of arrays at a place; what has length one along an axis holds for all of it."""
    found = dict(values)
    inside: dict[tuple[int, ...], Place] = {}
    for name, value in values.items():
        if isinstance(value, numpy.ndarray) and value.ndim == AXES:
            shape = value.shape
            if shape not in inside:
                inside[shape] = tuple(one if size > 1 else slice(None) for one, size in zip(place, shape, strict=True))
            found[name] = value[inside[shape]]
    return found


def blocks(group: Group, prices: Prices, inside: Inside | None = None) -> Iterator[Block]:
    """All layouts of a group, block by block."""
    folded = fold(group, prices, inside)
    for place in places(group):
        yield folded.block(place)


def places(group: Group) -> Iterator[Place]:
    """Where the blocks of a group are: all its schedules and recomputations, so that these share what they can, and as
    many meshes, ZeRO choices and micro-batches as make a block."""
    shape = group.shape
    for zero in sections(group):
        steps = [*shape[:ZERO], zero.stop - zero.start, *shape[ZERO + 1 :]]
        kept = (MESH, BLOCK_MESHES), (ZERO, BLOCK_SHARDINGS)
        for axis, least in ((MICRO, 1), *kept, (CHUNKS, 1), (ZERO, 1), (MESH, 1)):
            others = math.prod(steps) // steps[axis]
            steps[axis] = min(steps[axis], max(BLOCK_LAYOUTS // others, least))
        whole = [(0, size) for size in shape]
        whole[ZERO] = (zero.start, zero.stop)
        ranges = [range(start, stop, step) for (start, stop), step in zip(whole, steps, strict=True)]
        for first in itertools.product(*ranges):
            ends = [stop for _, stop in whole]
            place = tuple(slice(a, min(a + step, end)) for a, step, end in zip(first, steps, ends, strict=True))
            trimmed = without_edges(place, cut({"": group.valid}, place)[""])
            if trimmed is not None:
                yield trimmed


def without_edges(place: Place, valid: Array) -> Place | None:
    """A place without the meshes and ZeRO choices at its ends of which no layout is valid; None where none is."""
    whole = list(place)
    for axis in (ZERO, MESH):
        some = numpy.flatnonzero(valid.any(axis=tuple(other for other in range(AXES) if other != axis)))
        if not len(some):
            return None
        if valid.shape[axis] > 1:
            start = place[axis].start
            whole[axis] = slice(start + int(some[0]), start + int(some[-1]) + 1)
    return tuple(whole)


def setup_at(base: Setup, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job that has one found layout."""
    sizes = Layout(**{name: layout[name] for name in ("tp", "pp", "cp", "dp", "micro_batch", "micro_batches")})
    recompute = "selective" if layout["selective"] else "full" if layout["recompute_layers"] else "none"
    options: dict[str, Any] = {
        **{name: layout[name] for name in ("tp", "pp", "cp", "ep", "dp", "vpp", "zero", "micro_batch")},
        "global_batch": sizes.global_batch,
        "recompute": recompute, "gpus": sizes.gpus,
    }  # fmt: skip
    if base.job.recompute_modules:
        options["recompute_modules"] = base.job.recompute_modules
    if layout["recompute_layers"] > 0:
        options["recompute_layers"] = layout["recompute_layers"]
    if layout["zero"]:
        options["zero_group"] = layout["zero_group"]
    if base.model.experts is not None:
        options["etp"] = layout["etp"]
    if layout["tp"] > 1:
        options["sequence_parallel"] = bool(layout["sequence_parallel"])
    if layout["pp"] > 1:
        options["schedule"] = layout["schedule"]
    return options | unread(layout)
