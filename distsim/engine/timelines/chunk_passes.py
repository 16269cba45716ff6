"""Passes of each model chunk that a stage holds at the moments of which one is its peak.

Chunks of one size weigh the same, so that their number alone matters (``schedule_shape.in_flight``). Of unequal ones
early chunks are held more often than late ones, and the peak is where the sum of their bytes is largest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add, le, mul, sub
from typing import NamedTuple

from distsim.engine.timelines.in_flight import Held, passes_of
from distsim.engine.timelines.schedule_shape import ALL_FORWARDS_FIRST, few_rounds, splits
from distsim.formulas.bubbles import interleaved_group, interleaved_peak
from distsim.schedules.registry import build
from distsim.schedules.repeats import short
from distsim.schedules.rounds import visits

Vector = tuple[float, ...]
GROUPS = 3
"""Whole groups of micro-batches after which interleaved 1F1B repeats: it has filled in the second, and one more is a
round of its steady state."""


class Passes(NamedTuple):
    """The moments of a stage, by place of a chunk on it, in model order."""

    all: tuple[Held, ...]
    split: tuple[Held, ...] = ()
    """Those at which a backward begins that leaves weight gradients for later; empty where none does."""


def chunk_passes(schedule: str, stages: int, micro: int, chunks: int, stage: int) -> Passes:
    """What a stage holds of its chunks, of two copies of the model that of its own before that of the other."""
    if schedule in ALL_FORWARDS_FIRST:
        return Passes((((micro,) * chunks, (0,) * chunks),))
    if schedule == "interleaved-1f1b":
        return interleaved_passes(stages, micro, chunks, int(interleaved_group(stages, micro)), stage)
    return _counted(schedule, stages, few_rounds(schedule, stages, micro), chunks)[stage]


def interleaved_passes(stages: int, micro: int, chunks: int, group: int, stage: int) -> Passes:
    """The same under interleaved 1F1B in groups of so many micro-batches."""
    whole, rest = divmod(micro, group)
    return _interleaved(stages, min(whole, GROUPS) * group + rest, chunks, group, stage)


@functools.lru_cache(maxsize=4096)
def _interleaved(stages: int, micro: int, chunks: int, group: int, stage: int) -> Passes:
    """Once as many are in flight as may be, each forward follows a backward: the forwards of the visits so far less the
    backwards."""
    forwards, backwards = _visited(micro, chunks, group, False), _visited(micro, chunks, group, True)
    most = round(interleaved_peak(stages, micro, chunks, group, stage) * chunks)
    last = len(forwards) - most
    if micro % group == 0:
        last = min(last, group * chunks)
    none = (0,) * chunks
    found = {tuple(map(sub, forwards[most + turn], backwards[turn])) for turn in range(last)}
    return Passes(tuple((held, none) for held in found))


@functools.lru_cache(maxsize=1024)
def _visited(micro: int, chunks: int, group: int, backward: bool) -> list[tuple[int, ...]]:
    """How often each chunk was visited in the first n visits, n from 0 to all."""
    one = [tuple(int(place == turn) for place in range(chunks)) for turn in range(chunks)]
    steps = (one[turn] for turn, _ in visits(micro, chunks, group, backward))
    return list(accumulate(steps, lambda so_far, step: tuple(map(add, so_far, step)), initial=(0,) * chunks))


@functools.lru_cache(maxsize=1024)
def _counted(schedule: str, stages: int, micro: int, chunks: int) -> tuple[Passes, ...]:
    """Of each stage, counted in the schedule's order; it holds whatever time the passes take."""
    built = build(schedule, stages, micro, chunks)
    split = splits(schedule, stages)
    found = []
    for stage, order in enumerate(built.orders):
        own = [chunk for chunk, place in enumerate(built.placement) if place == stage]
        every, few = passes_of(short(order), own)
        found.append(Passes(tuple(every), tuple(few) if split else ()))
    return tuple(found)


def highest(vectors: Iterable[Vector]) -> list[Vector]:
    """Those that no other exceeds or equals in all entries: one of them has the largest sum, whatever its entries
    weigh."""
    found: list[Vector] = []
    for one in sorted(set(vectors), reverse=True):
        if not any(all(map(le, one, other)) for other in found):
            found.append(one)
    return found


def weighed_by(held: Sequence[Held], sizes: Sequence[Vector], ends: Sequence[Vector]) -> list[Vector]:
    """Layers of each kind before their input gradient, then those that wait and what of the ``ends`` does with them,
    at moments of which one is the peak; ``sizes`` and ``ends`` are those of each chunk."""
    kinds, tails = list(zip(*sizes, strict=True)), list(zip(*ends, strict=True))
    return highest((*_sums(before, kinds), *_sums(waiting, kinds + tails)) for before, waiting in held)


def _sums(counts: Sequence[int], columns: Sequence[Vector]) -> Vector:
    return tuple(sum(map(mul, counts, column)) for column in columns) if any(counts) else (0,) * len(columns)
