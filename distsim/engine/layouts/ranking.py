"""The best layouts of a search: what is minimised, and the few that are kept while millions pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy

from distsim.engine.layouts.fold import Block
from distsim.engine.layouts.space import AGAIN, AXES, ZERO, Array, Group

ALIKE = ("zero", "zero_group", "sequence_parallel", "selective", "recompute_layers")
"""Fields of a layout in which layouts that are alike may differ."""
OWN = tuple(axis for axis in range(AXES) if axis not in (ZERO, AGAIN))
"""Axes along which layouts are not alike (but for sequence parallelism, which is part of the mesh)."""

MEMORY, COST = "memory", "cost-per-token"
OBJECTIVES: dict[str, Callable[[Any, Any, float], Any]] = {
    "throughput": lambda seconds, peak, weight: seconds,
    MEMORY: lambda seconds, peak, weight: peak,
    COST: lambda seconds, peak, weight: seconds * weight,
    "fewest-gpus": lambda seconds, peak, weight: (seconds >= 0) * weight,
}
"""What is minimised, from seconds per step, bytes and a number of GPUs or what it costs; the global batch is the same
for all."""
BETTER = {"throughput": "faster than", COST: "cheaper than", "fewest-gpus": "on fewer GPUs than"}
"""What layouts are that an objective puts before another and that do not fit; of memory none does."""


class Objective(NamedTuple):
    """One of the objectives, with the dollars per hour of each number of GPUs where it asks for them."""

    name: str
    hourly: Mapping[int, float] = {}

    def __call__(self, seconds: Any, peak: Any, gpus: int) -> Any:
        """The number by which layouts are ranked; the least is best."""
        return OBJECTIVES[self.name](seconds, peak, self.hourly.get(gpus, gpus))


class Found(NamedTuple):
    """One layout with the order it has among others (smallest first)."""

    key: float
    seconds: float
    peak: float
    group: Group
    place: tuple[int, ...]

    @property
    def name(self) -> tuple[int, tuple[int, ...]]:
        """A key that tells this layout from all others of a search."""
        return id(self.group), self.place

    @property
    def layout(self) -> dict[str, Any]:
        """Its fields as plain numbers."""
        return self.group.layout_at(self.place)

    @property
    def family(self) -> tuple[Any, ...]:
        """The key that layouts alike to this one share."""
        setup = self.group.setup
        own = (value for name, value in self.layout.items() if name not in ALIKE)
        return (setup.precision.name, setup.offload, setup.job.recompute_modules, *own)


def rank(found: Found) -> tuple[float, float, float, tuple[int, ...]]:
    """Ties go to what takes less time, then less memory, then to what was tried first."""
    return found.key, found.seconds, found.peak, found.place


@dataclass
class Best:
    """The ``most`` layouts with the smallest key."""

    most: int
    found: list[Found] = field(default_factory=list)
    worst: float = float("inf")

    def add(self, block: Block, key: Array, seconds: Array, peak: Array, index: Array) -> None:
        """Look at layouts of a block; ``index`` are their places in it."""
        places = self._candidates(key, seconds)
        if len(places):
            self._take(block, key, seconds, peak, index, places)

    def _candidates(self, key: Array, seconds: Array) -> Array:
        """Which layouts may come before the last of those known."""
        places = numpy.flatnonzero(key <= self.worst)
        if len(self.found) >= self.most:  # of those that tie with the last, the quicker may still come before it
            last = self.found[-1]
            places = places[(key[places] < last.key) | (seconds[places] <= last.seconds)]
        return places

    def _take(self, block: Block, key: Array, seconds: Array, peak: Array, index: Array, places: Array) -> None:
        if len(places) > self.most:
            order = numpy.lexsort((peak[places], seconds[places], key[places]))
            places = places[order[: self.most]]
        self.join([
            Found(float(key[i]), float(seconds[i]), float(peak[i]), block.group, found_at(block, int(index[i])))
            for i in places
        ])  # fmt: skip

    def join(self, new: list[Found]) -> None:
        """Take in layouts that were tried after those known."""
        self.found = sorted(self.found + new, key=rank)[: self.most]
        if len(self.found) >= self.most:
            self.worst = self.found[-1].key


@dataclass
class Families(Best):
    """The ``most`` best layouts that really differ: of those that are alike, the best."""

    families: dict[Any, Any] = field(default_factory=dict)
    """What is common to the family of each found layout."""

    def add(self, block: Block, key: Array, seconds: Array, peak: Array, index: Array) -> None:
        """Look at layouts of a block; ``index`` are their places in it."""
        places = self._candidates(key, seconds)
        if not len(places):
            return
        inside = numpy.unravel_index(index[places], block.seconds.shape)
        family = numpy.ravel_multi_index(
            tuple(inside[axis] for axis in OWN), tuple(block.seconds.shape[axis] for axis in OWN)
        )
        order = numpy.lexsort((peak[places], seconds[places], key[places], family))
        family = family[order]
        first = places[order[numpy.flatnonzero(numpy.concatenate(([True], family[1:] != family[:-1])))]]
        self._take(block, key, seconds, peak, index, first)

    def join(self, new: list[Found]) -> None:
        """Take in layouts that were tried after those known."""
        kept: dict[Any, Found] = {}
        for one in sorted(self.found + new, key=rank):
            kept.setdefault(self.families.get(one.name) or one.family, one)
        best = list(kept.items())[: self.most]
        self.found = [one for _, one in best]
        self.families = {one.name: family for family, one in best}  # of no other: its group's id may be used again
        if len(self.found) >= self.most:
            self.worst = self.found[-1].key


def found_at(block: Block, index: int) -> tuple[int, ...]:
    """Where a layout of a block is in its group."""
    inside = numpy.unravel_index(index, block.seconds.shape)
    return tuple(first + int(i) for first, i in zip(block.start, inside, strict=True))
