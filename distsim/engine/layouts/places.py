"""Where the layouts of a group are that are looked at together, and the parts of its arrays that are there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from distsim.engine.layouts.space import AXES, CHUNKS, MESH, MICRO, ZERO, Array, Group

BLOCK_LAYOUTS = 65_536
"""Layouts whose time and memory are added up at once: their arrays stay in the cache."""
BLOCK_MESHES, BLOCK_SHARDINGS = 16, 8
"""Meshes of a block, and choices of ZeRO, below which other axes are cut instead."""

Place = tuple[slice, ...]


def sections(group: Group) -> list[slice]:
    """Neighbouring ZeRO choices that shard parameters, or do not."""
    shards = group.setup.layout.zero.ravel() >= 3
    edges = [0, *(numpy.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(shards)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


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


def along_zero(values: Mapping[str, Any], zero: slice) -> dict[str, Any]:
    return cut(values, (slice(None), slice(None), zero, slice(None), slice(None)))


def thin(values: Mapping[str, Any], zero: slice) -> dict[str, Any]:
    """Arrays at some ZeRO choices, with length one along an axis where they are constant; numbers where all are."""
    found = {}
    for name, value in along_zero(values, zero).items():
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
