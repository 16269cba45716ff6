"""Makespan of a schedule over equal stages when forward, input gradient and weight gradient have any lengths.

In a fixed order every action ends where the longest chain of actions before it lets it: the makespan is the largest of
finitely many sums of so many forwards, input gradients and weight gradients (a max-plus polynomial). One event
simulation of many ratios of the three at once finds those sums, and they then give every other ratio, for one layout
or for arrays of them. From ``ROUNDS`` rounds of micro-batches on, another round adds the same to each
(tests/test_pass_lengths.py holds both against simulations of more rounds at other ratios).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy

from distsim.engine.timelines.groups import grouped
from distsim.engine.timelines.timeline import simulate
from distsim.engine.timelines.wiring import Costs
from distsim.schedules.registry import build

ROUNDS = 4
"""Rounds of as many micro-batches as there are stages, from which on a makespan grows by the same each round."""
OWN_ROUNDS = ("interleaved-zb",)
"""Schedules whose rounds are longer where the stages do not divide the micro-batches: fewer than the square of the
stages then, all of which are simulated; how much a further one adds is told by rounds that the stages divide."""
NODES = 24
"""Steps between two lengths' zero and all of a micro-batch; finer ones find no further path that matters."""
OFFSETS = (0.11, 0.13, 0.17)
"""Offsets that keep ratios away from ties, where two paths are equally long."""
SMALL = 1e-6
"""What a length is changed by to count how often the longest path has it."""
MOST_NUMBERS = 2**23
"""That one simulation keeps: ends of all actions at some ratios."""


class Path(NamedTuple):
    """A chain of actions by its parts, each in passes of a micro-batch through a whole stage."""

    forwards: float
    input_gradients: float
    weight_gradients: float
    around: bool
    """Whether a further micro-batch lengthens it by more than a stage's work: it goes around between stages."""


@functools.lru_cache(maxsize=1024)
def longest_paths(name: str, stages: int, micro: int, chunks: int) -> tuple[Path, ...]:
    """The paths that are longest at some ratio of the three lengths."""
    few = min(micro, (ROUNDS - 1) * stages + micro % stages)
    if name in OWN_ROUNDS and micro % stages:
        few, further = micro, ROUNDS * stages
    else:
        further = few + stages
    ends = _ends(name, stages, few, chunks)
    growth = (_ends(name, stages, further, chunks) - _ends(name, stages, further - stages, chunks)) / stages
    return _paths(ends + (micro - few) * growth, growth[0] > 1 + SMALL, chunks)


def _ratios() -> Any:
    """[3, nodes] shares of a micro-batch: all ratios on a triangle, and none of them zero."""
    points = [(a, b, NODES - a - b) for a in range(NODES + 1) for b in range(NODES + 1 - a)]
    shares = numpy.array(points, float).T + numpy.array(OFFSETS).reshape(3, 1)
    return shares / shares.sum(axis=0)


@functools.lru_cache(maxsize=256)
def _ends(name: str, stages: int, micro: int, chunks: int) -> Any:
    """[3, nodes] makespans at all ratios: as they are, with a longer forward, with a longer input gradient."""
    schedule = build(name, stages, micro, chunks, **grouped(name, stages, micro))
    longer = numpy.zeros((3, 3, 1))
    longer[1, 0] = longer[2, 1] = SMALL
    actions = sum(map(len, schedule.orders))
    nodes = _ratios()
    slices = math.ceil(nodes.shape[1] * len(longer) * actions / MOST_NUMBERS)
    found = []
    for some in numpy.array_split(nodes, min(slices, nodes.shape[1]), axis=1):
        forward, first, second = ((some[part] + longer[:, part]) / schedule.chunks for part in range(3))
        times = [[one] * len(schedule.placement) for one in (forward, first + second, first, second)]
        run = simulate(schedule, micro, Costs(*times), later=numpy.maximum)
        found.append(functools.reduce(numpy.maximum, run.last_end))
    return numpy.concatenate(found, axis=1)


def _paths(ends: Any, around: Any, chunks: int) -> tuple[Path, ...]:
    """The distinct paths behind the makespans; where two are as long as each other within rounding, neither."""
    nodes = _ratios()
    forwards, firsts = (ends[1:] - ends[0]) / SMALL
    seconds = (ends[0] - forwards * nodes[0] - firsts * nodes[1]) / nodes[2]
    counts = numpy.round(numpy.stack([forwards, firsts, seconds]) * chunks) / chunks
    sure = numpy.abs((counts * nodes).sum(axis=0) - ends[0]) < SMALL
    found = numpy.unique(numpy.vstack([counts, around])[:, sure], axis=1)
    return tuple(Path(a, b, c, bool(goes)) for a, b, c, goes in found.T.tolist())
