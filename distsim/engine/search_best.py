"""What a search keeps while millions of layouts pass: the best, the front of time against memory, the near misses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy

from distsim.engine.search_fold import Block
from distsim.engine.search_ranking import Best, Families, Found, Objective, found_at
from distsim.engine.search_space import Array

BUCKETS = 512
"""Steps of memory in which a layout is first held against the front."""
NEAR = 1.25
"""A layout that needs up to so many times the memory there is has nearly fitted."""


@dataclass
class Front:
    """Layouts that no other beats in both time and memory."""

    limit: float
    found: list[Found] = field(default_factory=list)
    least: Array = field(default_factory=lambda: numpy.full(BUCKETS + 1, numpy.inf))
    """Least time known with no more memory than where a bucket begins."""

    def add(self, block: Block, seconds: Array, peak: Array, index: Array) -> None:
        """Look at layouts of a block that fit."""
        bucket = (peak * (BUCKETS / self.limit)).astype(numpy.int32)
        places = numpy.flatnonzero(seconds < self.least[bucket])
        if not len(places):
            return
        places = places[front(peak[places], seconds[places])]
        self.join([
            Found(0.0, float(seconds[i]), float(peak[i]), block.group, found_at(block, int(index[i]))) for i in places
        ])  # fmt: skip

    def join(self, new: list[Found]) -> None:
        """Take in layouts that were tried after those known; of two that are equal the first stays."""
        every = self.found + new
        if not every:
            return
        kept = front(numpy.array([one.peak for one in every]), numpy.array([one.seconds for one in every]))
        self.found = [every[i] for i in kept]
        peaks = numpy.array([one.peak for one in self.found])
        times = numpy.array([one.seconds for one in self.found])
        edges = numpy.arange(BUCKETS + 1) * (self.limit / BUCKETS)
        count = numpy.searchsorted(peaks, edges, side="right")
        self.least = numpy.where(count > 0, times[numpy.maximum(count - 1, 0)], numpy.inf)


def front(peak: Array, seconds: Array) -> Array:
    """Indices of the layouts that no other beats, least memory first."""
    order = numpy.lexsort((seconds, peak))
    sorted_seconds = seconds[order]
    before = numpy.concatenate(([numpy.inf], numpy.minimum.accumulate(sorted_seconds)[:-1]))
    return order[sorted_seconds < before]


@dataclass
class Kept:
    """All that a search remembers of the layouts that it has seen."""

    limit: float
    """Bytes that a layout may take on one GPU."""
    key: Objective
    within: float
    """Seconds that a step may take."""
    most: int
    evaluated: int = 0
    fitting: int = 0
    feasible: int = 0
    best: Best = field(init=False)
    """The best of really different layouts."""
    every: Best = field(init=False)
    """The best of all, however alike they are."""
    almost: Best = field(init=False)
    nearest: Best = field(init=False)
    quickest: Best = field(init=False)
    front: Front = field(init=False)

    def __post_init__(self) -> None:
        self.best, self.every = Families(self.most), Best(self.most)
        self.almost, self.nearest = Families(self.most), Families(self.most)
        self.quickest, self.front = Families(self.most), Front(self.limit)

    def add(self, block: Block) -> None:
        """Look at a block of layouts."""
        valid = numpy.flatnonzero(block.valid)
        if len(valid) == block.seconds.size:
            seconds, peak = numpy.ravel(block.seconds), numpy.ravel(block.peak)
        else:
            seconds, peak = block.seconds[block.valid], block.peak[block.valid]
        self.evaluated += len(valid)
        fits = numpy.flatnonzero(peak <= self.limit)
        self.fitting += len(fits)
        if not self.feasible and not len(fits):
            self.nearest.add(block, peak, seconds, peak, valid)
        self._misses(block, seconds, peak, valid)
        if not len(fits):
            return
        seconds, peak, valid = seconds[fits], peak[fits], valid[fits]
        if self.within < float("inf"):
            quick = numpy.flatnonzero(seconds <= self.within)
            if not len(quick):
                self.quickest.add(block, seconds, seconds, peak, valid)
                return
            seconds, peak, valid = seconds[quick], peak[quick], valid[quick]
        self.feasible += len(seconds)
        gpus = int(numpy.max(block.group.setup.layout.gpus))
        key = self.key(seconds, peak, gpus)
        for best in (self.best, self.every):
            best.add(block, key, seconds, peak, valid)
        self.front.add(block, seconds, peak, valid)

    def _misses(self, block: Block, seconds: Array, peak: Array, index: Array) -> None:
        """Layouts that would be quick but need somewhat more memory than there is."""
        near = numpy.flatnonzero((peak > self.limit) & (peak <= self.limit * NEAR) & (seconds <= self.almost.worst))
        if len(near):
            self.almost.add(block, seconds[near], seconds[near], peak[near], index[near])
