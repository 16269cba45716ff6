"""A search cut into chunks that other processes can sift, and put together again to the very answer of one process.

A chunk carries its groups with all specs loaded, so that a worker needs no file of the user's. What it sends back are
the few layouts worth keeping. They are merged in the order of chunks, whatever order these were done in; layouts are
ordered by time, memory and place alone, so neither the cut nor the number of workers shows in the answer.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from distsim.arrays import ceil_div
from distsim.engine.counted import Pool
from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.fold import Folded, fold
from distsim.engine.layouts.places import places
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.ranking import Best, Found, Objective
from distsim.engine.layouts.space import Group

PER_WORKER = 4
"""Chunks for each worker: enough that none waits long for the last."""
LISTS = ("best", "every", "almost", "nearest", "quickest", "slow_misses", "perhaps", "front", "slower")


class Piece(NamedTuple):
    """Neighbouring blocks of a group; ``number`` is the group's place among all."""

    number: int
    group: Group
    first: int
    last: int


class Chunk(NamedTuple):
    """A worker's share of a search, done at once. ``search`` names the search, of which a worker remembers some between
    chunks."""

    search: str
    objective: Objective
    limit: float
    within: float
    most: int
    batch: int
    pace: float
    unsure: bool
    pieces: tuple[Piece, ...]


Row = tuple[float, float, float, int, tuple[int, ...]]
"""A found layout with the number of its group instead of the group."""


class Sifted(NamedTuple):
    """The layouts of a chunk that are worth keeping, and how many were looked at."""

    evaluated: int
    fitting: int
    feasible: int
    lists: dict[str, list[Row]]


def gather(pool: Pool, groups: Sequence[Group], kept: Kept, watch: Callable[[int, int], None] | None) -> None:
    """Add all layouts of groups to those kept; after an interrupt, those of the chunks that were done."""
    done: dict[int, Sifted] = {}
    evaluated, whole = kept.evaluated, kept.evaluated + sum(group.layouts for group in groups)
    try:
        for index, sifted in pool.share(sift, chunks(groups, kept, pool.workers)):
            done[index] = sifted
            evaluated += sifted.evaluated
            if watch is not None:
                watch(evaluated, whole)
    finally:
        for index in sorted(done):
            _absorb(kept, done[index], groups)


def chunks(groups: Sequence[Group], kept: Kept, workers: int) -> list[Chunk]:
    """All blocks of all groups in order, in chunks of about as many blocks each."""
    counts = [sum(1 for _ in places(group)) for group in groups]
    size = max(int(ceil_div(sum(counts), workers * PER_WORKER)), 1)
    name = uuid.uuid4().hex
    found: list[list[Piece]] = [[]]
    room = size
    for number, (group, count) in enumerate(zip(groups, counts, strict=True)):
        first = 0
        while first < count:
            last = min(first + room, count)
            found[-1].append(Piece(number, group, first, last))
            room -= last - first
            first = last
            if not room:
                found.append([])
                room = size
    same = (name, kept.key, kept.limit, kept.within, kept.most, kept.batch, kept.pace, kept.unsure)
    return [Chunk(*same, tuple(pieces)) for pieces in found if pieces]


def sift(chunk: Chunk) -> Sifted:
    """Evaluate the layouts of a chunk; runs in a worker."""
    kept = Kept(chunk.limit, chunk.objective, chunk.within, chunk.most, chunk.batch, chunk.pace, unsure=chunk.unsure)
    memory = _memory(chunk.search, threading.get_ident())
    numbers: dict[int, int] = {}
    for number, group, first, last in chunk.pieces:
        folded = memory.fold(number, group)
        numbers[id(folded.group)] = number
        for place in list(places(folded.group))[first:last]:
            kept.add(folded.block(place))
    return Sifted(
        kept.evaluated, kept.fitting, kept.feasible,
        {name: [(*one[:3], numbers[id(one.group)], one.place) for one in getattr(kept, name).found] for name in LISTS},
    )  # fmt: skip


class Memory:
    """What a worker need not compute again for its next chunk: prices, and the group that it folded last."""

    def __init__(self) -> None:
        self.prices = Prices()
        self.last: tuple[int, Folded] | None = None

    def fold(self, number: int, group: Group) -> Folded:
        """The folded group of that number."""
        if self.last is None or self.last[0] != number:
            self.last = number, fold(group, self.prices)
        return self.last[1]


@functools.lru_cache(maxsize=16)
def _memory(search: str, thread: int) -> Memory:
    """What a thread of this process remembers of a search."""
    return Memory()


def _absorb(kept: Kept, sifted: Sifted, groups: Sequence[Group]) -> None:
    kept.evaluated += sifted.evaluated
    kept.fitting += sifted.fitting
    kept.feasible += sifted.feasible
    for name, rows in sifted.lists.items():
        best: Best = getattr(kept, name)
        best.join([Found(key, seconds, peak, groups[number], place) for key, seconds, peak, number, place in rows])
