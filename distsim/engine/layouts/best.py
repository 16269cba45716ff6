"""What a search keeps while millions of layouts pass: the best, the front of time against memory, the near misses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy

from distsim.engine.layouts.fold import Block
from distsim.engine.layouts.ranking import BETTER, Best, Families, Found, Objective, found_at
from distsim.engine.layouts.space import CHUNKS, Array, Group
from distsim.engine.steps.simulated import ALWAYS_EXACT, LEARNED

BUCKETS = 512
"""Steps of memory in which a layout is first held against the front."""
NEARLY_FITS = 1.25
"""A layout that needs up to so many times the memory there is has nearly fitted."""
SHORTER = 0.25
"""Share by which a simulated step may be shorter than the closed form that found it, which has the slowest stage's
passes on all: drawn layouts of uneven stages showed up to 18% (v-min), one of v-half 26%."""


@dataclass
class Front:
    """Layouts that no other beats in both time and memory."""

    limit: float
    found: list[Found] = field(default_factory=list)
    least: Array = field(default_factory=lambda: numpy.full(BUCKETS + 1, numpy.inf))
    """Least time known with no more memory than where a bucket begins."""

    def add(self, block: Block, scaled: Array, seconds: Array, peak: Array, index: Array) -> None:
        """Look at layouts of a block that fit, by their scaled time."""
        bucket = (peak * (BUCKETS / self.limit)).astype(numpy.int32)
        places = numpy.flatnonzero(scaled < self.least[bucket])
        if not len(places):
            return
        places = places[front(peak[places], scaled[places])]
        self.join([
            Found(float(scaled[i]), float(seconds[i]), float(peak[i]), block.group, found_at(block, int(index[i])))
            for i in places
        ])  # fmt: skip

    def join(self, new: list[Found]) -> None:
        """Take in layouts that were tried after those known; of two that are equal the first stays."""
        every = self.found + new
        if not every:
            return
        kept = front(numpy.array([one.peak for one in every]), numpy.array([one.key for one in every]))
        self.found = [every[i] for i in kept]
        peaks = numpy.array([one.peak for one in self.found])
        times = numpy.array([one.key for one in self.found])
        edges = numpy.arange(BUCKETS + 1) * (self.limit / BUCKETS)
        count = numpy.searchsorted(peaks, edges, side="right")
        self.least = numpy.where(count > 0, times[numpy.maximum(count - 1, 0)], numpy.inf)


def front(peak: Array, seconds: Array) -> Array:
    """Indices of the layouts that no other beats, least memory first."""
    order = numpy.lexsort((seconds, peak))
    sorted_seconds = seconds[order]
    before = numpy.concatenate(([numpy.inf], numpy.minimum.accumulate(sorted_seconds)[:-1]))
    return order[sorted_seconds < before]


def may_be_shorter(block: Block) -> Array:
    """Which layouts of a block have a pipeline whose own step may be shorter than its closed form."""
    layout = block.group.setup.layout
    names = numpy.broadcast_to(layout.schedule, (block.group.shape[CHUNKS], *[1] * (block.seconds.ndim - 1)))
    first = block.start[CHUNKS]
    here = names[first : first + block.seconds.shape[CHUNKS]]
    unsure = ~numpy.isin(here, (*LEARNED, *ALWAYS_EXACT)) & (layout.pp > 1)
    return numpy.ravel(numpy.broadcast_to(unsure, block.seconds.shape))


@dataclass
class Kept:
    """All that a search remembers of the layouts that it has seen."""

    limit: float
    """Bytes that a layout may take on one GPU."""
    key: Objective
    within: float
    """Seconds that a step may take."""
    most: int
    batch: int
    """Sequences per step to which the times of layouts with other batches are scaled before they are compared."""
    pace: float = float("inf")
    """Seconds that a sequence may take, where a deadline is set for a number of tokens."""
    brief: bool = False
    """Whether the best of really different layouts and the front are all that is asked for."""
    unsure: bool = False
    """Whether schedules are asked for whose own steps may be shorter than their closed form, or that are tried where
    others have been: then what is late is looked at, too."""
    evaluated: int = 0
    fitting: int = 0
    feasible: int = 0
    untimed: list[Group] = field(default_factory=list, init=False)
    """Groups that were looked at without their times, as none of their layouts nearly fits."""
    best: Best = field(init=False)
    """The best of really different layouts."""
    every: Best = field(init=False)
    """The best of all, however alike they are."""
    almost: Best = field(init=False)
    nearest: Best = field(init=False)
    quickest: Best = field(init=False)
    """Of those that fit and are late."""
    slow_misses: Best = field(init=False)
    """Of those that nearly fit and are late."""
    perhaps: Best = field(init=False)
    """The best of those that are late by a closed form than which their own step may be shorter."""
    front: Front = field(init=False)
    slower: Front = field(init=False)
    """The front of those that fit and are late."""

    def __post_init__(self) -> None:
        self.best, self.every = Families(self.most), Best(self.most)
        self.almost, self.nearest = Families(self.most), Families(self.most)
        self.quickest, self.slow_misses = Families(self.most), Families(self.most)
        self.perhaps = Families(self.most)
        self.front, self.slower = Front(self.limit), Front(self.limit)

    @property
    def most_bytes(self) -> float:
        """Bytes beyond which nobody asks how long a layout takes, unless nothing fits."""
        return self.limit * (1 if self.brief else NEARLY_FITS)

    def add(self, block: Block) -> None:
        """Look at a block of layouts."""
        seconds, peak, valid = (numpy.ravel(one) for one in (block.seconds, block.peak, block.valid))
        self.evaluated += int(numpy.count_nonzero(valid))
        fits = numpy.flatnonzero((peak <= self.limit) & valid)
        self.fitting += len(fits)
        if not self.feasible and not len(fits) and not self.brief:
            self.miss(block)
        if not self.brief:
            self._misses(block, seconds, peak, valid)
        if not len(fits):
            return
        seconds, peak = seconds[fits], peak[fits]
        longest = self.longest(block.group.batch)
        if longest < float("inf"):
            quick = numpy.flatnonzero(seconds <= longest)
            if self.unsure or not len(quick):
                late = numpy.flatnonzero(seconds > longest)
                self._late(block, longest, seconds[late], peak[late], fits[late])
            if not len(quick):
                return
            seconds, peak, fits = seconds[quick], peak[quick], fits[quick]
        self.feasible += len(seconds)
        key = self.ordered(seconds, peak, block.group)
        for best in (self.best,) if self.brief else (self.best, self.every):
            best.add(block, key, seconds, peak, fits)
        self.front.add(block, self.scaled(seconds, block.group), seconds, peak, fits)

    def _late(self, block: Block, longest: float, seconds: Array, peak: Array, index: Array) -> None:
        """Look at layouts of a block that fit and take longer than they may."""
        self.quickest.add(block, seconds, seconds, peak, index)
        if not self.unsure:
            return
        self.slower.add(block, self.scaled(seconds, block.group), seconds, peak, index)
        maybe = numpy.flatnonzero((seconds * (1 - SHORTER) <= longest) & may_be_shorter(block)[index])
        if len(maybe):
            key = self.ordered(seconds[maybe], peak[maybe], block.group)
            self.perhaps.add(block, key, seconds[maybe], peak[maybe], index[maybe])

    def miss(self, block: Block) -> None:
        """Look at a block of layouts of which none fits."""
        seconds, peak, valid = (numpy.ravel(one) for one in (block.seconds, block.peak, block.valid))
        every = numpy.flatnonzero(valid)
        self.nearest.add(block, peak[every], seconds[every], peak[every], every)

    def timed(self) -> None:
        """Forget the nearest misses that are known without their times, by which those that tie are told apart."""
        known = [one for one in self.nearest.found if one.seconds < float("inf")]
        self.nearest, self.untimed = Families(self.most), []
        self.nearest.join(known)

    def longest(self, batch: int) -> float:
        """Seconds that a step of so many sequences may take."""
        return min(self.within, self.pace * batch)

    def scaled(self, seconds: Any, group: Group) -> Any:
        """Seconds for as many sequences as all layouts are compared by."""
        return seconds if group.batch == self.batch else seconds * (self.batch / group.batch)

    def ordered(self, seconds: Any, peak: Any, group: Group) -> Any:
        """The number by which layouts are ranked; the least is best."""
        return self.key(self.scaled(seconds, group), peak, int(numpy.max(group.setup.layout.gpus)))

    def _misses(self, block: Block, seconds: Array, peak: Array, valid: Array) -> None:
        """Layouts that would be good, and soon enough, but need somewhat more memory than there is; where that is what
        is compared, the quick ones."""
        by_time = self.key.name not in BETTER
        key = self.scaled(seconds, block.group) if by_time else self.ordered(seconds, peak, block.group)
        over = (peak > self.limit) & (peak <= self.limit * NEARLY_FITS) & valid
        longest = self.longest(block.group.batch)
        self._miss(self.almost, block, key, seconds, peak, over & (seconds <= longest))
        if self.unsure and longest < float("inf"):
            self._miss(self.slow_misses, block, key, seconds, peak, over & (seconds > longest))

    @staticmethod
    def _miss(best: Best, block: Block, key: Array, seconds: Array, peak: Array, which: Array) -> None:
        near = numpy.flatnonzero(which & (key <= best.worst))
        if len(near):
            best.add(block, key[near], seconds[near], peak[near], near)
