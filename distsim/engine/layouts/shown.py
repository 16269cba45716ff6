"""Which of a search's layouts are shown, by their own computation.

Millions are ranked by the closed form of their pipeline. A layout that is computed again by itself has that time but
for schedules whose bubble is simulated (engine/steps/simulated.py), which mostly idle longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

from distsim import catalog
from distsim.engine.layouts.best import SHORTER, Kept, front
from distsim.engine.layouts.choice import Choice, Steps, choice
from distsim.engine.layouts.ranking import BETTER, COST, Found, rank
from distsim.engine.steps.simulated import ALWAYS_EXACT, LEARNED

FRONT = 24
"""Points of the front that are re-evaluated and reported; of more, every so many."""
NEAR_MISSES = 5
"""Layouts that nearly fit which are reported."""
SPARE = 3
"""So many more than asked may be computed again, so that the order is that of their own numbers."""
BY_TIME = ("throughput", COST)
"""Objectives that rank by the time of a step."""
AGREED = 1e-6
"""Share by which a layout's own numbers may differ from those of the search; tests hold them to a thousandth of it."""


def ranked(kept: Kept, top: int, known: Steps, all_ranks: bool = False) -> tuple[Choice, ...]:
    """The best few, in the order that their own computation gives; for each that takes longer than the search had it,
    another is looked at, and so is what may take less."""
    again: list[Choice] = []
    for one in sorted([*(kept.every if all_ranks else kept.best).found, *kept.perhaps.found], key=rank):
        last = _ordered(again[top - 1], kept) * (1 + AGREED) if len(again) >= top else math.inf
        if one.key * (1 - SHORTER) > last or sum(_ordered(other, kept) <= last for other in again) >= top + SPARE:
            break
        if one.key > last and not _may_be_shorter(one, kept):
            continue
        own = choice(one, known)
        if not _late(own, kept):
            again.append(own)
            again.sort(key=lambda one: (_ordered(one, kept), one.report.seconds, one.report.memory.peak))
    return tuple(again[:top])


@catalog.settled()
def front_of(best: Sequence[Choice], kept: Kept, known: Steps) -> tuple[Choice, ...]:
    """Layouts that no other beats in both time and memory; where some take longer than the search had it, of these and
    the best those that none of them beats."""
    found = [choice(one, known) for one in thinned(kept.front.found)]
    every = list({one.found.name: one for one in (*found, *best)}.values())
    if not any(_moved(one) for one in every):
        return tuple(found)
    timely = [one for one in every if not _late(one, kept)]
    peaks = numpy.array([one.report.memory.peak for one in timely])
    times = numpy.array([kept.scaled(one.report.seconds, one.found.group) for one in timely])
    return tuple(timely[i] for i in front(peaks, times))


@catalog.settled()
def almost(best: Sequence[Choice], kept: Kept, known: Steps) -> tuple[Choice, ...]:
    """Layouts that nearly fit and would be better than the best that does, if any can be that need more memory."""
    if kept.key.name not in BETTER:
        return ()
    bound = _ordered(best[0], kept) * (1 - AGREED) if best else math.inf
    better: list[Choice] = []
    for one in kept.almost.found:
        if len(better) == NEAR_MISSES or one.key >= bound:
            break
        own = choice(one, known)
        if not _late(own, kept) and (not _moved(own) or _ordered(own, kept) < bound):
            better.append(own)
    return tuple(sorted(better, key=lambda one: _ordered(one, kept)))


@catalog.settled()
def nearest(kept: Kept, known: Steps, most: int) -> tuple[Choice, ...]:
    """What misses by least, where nothing is feasible: the quickest that fit, else what needs least memory more."""
    quick = sorted([*kept.best.found, *kept.quickest.found], key=lambda one: one.seconds)
    found = [choice(one, known) for one in (quick or kept.nearest.found)[:most]]
    return tuple(sorted(found, key=lambda one: one.report.seconds) if quick else found)


def thinned(found: list[Found]) -> list[Found]:
    """Points of a front, evenly by their number, both ends kept."""
    if len(found) <= FRONT:
        return found
    return [found[round(index * (len(found) - 1) / (FRONT - 1))] for index in range(FRONT)]


def _may_be_shorter(one: Found, kept: Kept) -> bool:
    """Whether the own step of a found layout may come before those that the search ranks before it."""
    layout = one.layout
    return kept.key.name in BY_TIME and layout["pp"] > 1 and layout["schedule"] not in (*LEARNED, *ALWAYS_EXACT)


def _ordered(one: Choice, kept: Kept) -> float:
    """The number by which a layout is ranked, of its own step."""
    return float(kept.ordered(one.report.seconds, one.report.memory.peak, one.found.group))


def _moved(one: Choice) -> bool:
    """Whether its own step takes longer, or shorter, than the search had it."""
    return not math.isclose(one.report.seconds, one.found.seconds, rel_tol=AGREED)


def _late(one: Choice, kept: Kept) -> bool:
    """Whether its own step takes longer than was asked."""
    return one.report.seconds > kept.longest(one.found.group.batch) * (1 + AGREED)
