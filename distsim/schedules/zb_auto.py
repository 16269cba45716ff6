"""A zero-bubble order found for the given times under a memory limit (the aim of ZB-p: Qi et al. 2023, Zero bubble
pipeline parallelism, section 4): the shortest of those that several heuristics find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from distsim.errors import DistsimError
from distsim.schedules import repeats, zb_h1, zb_h2, zb_paper, zb_ready
from distsim.schedules.action import Action
from distsim.schedules.split_passes import Found, Times, Way, timed

ALIKE = 1e-3
"""Share of a makespan by which an order may be longer than another and still be as good; the longest span of a stage
then decides, which is what stages pay that begin their next step as soon as they are done."""
COMPARED = 2**14
"""Micro-batches, over all stages, that heuristics are compared by where there are more; the best one then orders all.
Of many the fewer tell which it is, as what it takes to fill and to drain weighs little."""


def order(
    stages: int, micro: int, chunks: int = 1, limit: int | None = None, times: Times | None = None, kept: float = 1.0
) -> Sequence[Sequence[Action]]:
    """The order with the smallest makespan, of those alike the one with the shortest longest stage. A stage holds at
    most the memory of ``limit`` micro-batches (default 2 stages, the paper's ZB-2p): all of one from its forward to its
    input gradient, then the share ``kept`` that its weight gradient reads (the paper's M_W over M_B)."""
    limit = 2 * stages if limit is None else limit
    if limit < 1:
        raise DistsimError(f"a memory limit of {limit} micro-batches per stage allows none", "give at least 1")
    if not 0 < kept <= 1:
        raise DistsimError(
            f"the share of memory kept for weight gradients is {kept:g}", "give more than 0 and at most 1"
        )
    times = times or Times([1] * stages, [1] * stages, [1] * stages)
    few = min(micro, max(COMPARED // stages, stages))
    return _shortest(stages, few, limit, times, kept)(micro).orders


def _shortest(stages: int, micro: int, limit: int, times: Times, kept: float) -> Way:
    """The heuristic that finds the shortest order. Those of the paper go first: where one of them is as short as any
    order can be, no more are tried."""
    asked = stages, limit, times, kept
    tried = [(way, way(micro).seconds) for way in zb_paper.ways(*asked)]
    tried += [(way, way(micro).seconds) for way in _fixed(stages, limit, times)]
    if min(seconds.whole for _, seconds in tried) > least(stages, micro, limit, times) * (1 + ALIKE):
        tried += [(way, way(micro).seconds) for way in zb_ready.ways(stages, micro, *asked[1:])]
    most = min(seconds.whole for _, seconds in tried) * (1 + ALIKE)
    way, _ = min((one for one in tried if one[1].whole <= most), key=lambda one: (one[1].span, one[1].whole))
    return way


def _fixed(stages: int, limit: int, times: Times) -> Iterator[Way]:
    """The orders that are the same for all times, as far as their memory is allowed."""
    for make, needed in ((zb_h1.order, stages), (zb_h2.order, 2 * stages - 1)):
        if limit >= needed:
            yield partial(_as_made, partial(make, stages), stages, times)


def _as_made(make: Callable[[int], Sequence[Sequence[Action]]], stages: int, times: Times, micro: int) -> Found:
    orders = (repeats.by_rounds(make, stages, micro, 1) if micro > COMPARED // stages else None) or make(micro)
    return Found(orders, timed(orders, times))


def least(stages: int, micro: int, limit: int, times: Times) -> float:
    """Seconds that no order can undercut: a stage begins when the first forward reaches it, has forwards within the
    limit for the first round trip to the last stage, works, and lets the last input gradient reach the first stage."""
    trips = zb_ready.round_trips(stages, times)
    seconds = head = tail = 0.0
    for forward, gradient, weights, trip in zip(*times[:3], trips, strict=True):
        wait = max(0.0, trip - forward * min(micro, limit))
        after = max(micro * weights, tail + times.weight_gradient[0])
        seconds = max(seconds, head + wait + micro * (forward + gradient) + after)
        head += forward + times.hop
        tail += gradient + times.hop
    return seconds
