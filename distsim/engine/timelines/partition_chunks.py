"""Splits layers over devices that hold several chunks of the model each, so that the slowest device is fastest.

Which chunks share a device couples the cuts, so there is no dynamic programme over cuts alone. A lower bound comes from
the sums that layers can make at all; a depth-first search then looks for a split under a limit, where devices may only
waste what all of them together have to spare, and visits no state twice. The limit is the bound first, then bisected.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from distsim.engine.timelines.partition import Partition, split

MOST_VISITS = 10_000
"""Most states of one search; beyond them its answer is not proven optimal."""
MOST_TRIES = 5
"""Searches without proof of optimality after which the best split so far is returned."""
MOST_SUMS = 5_000
"""Most sums of layers' times that a bound looks at; with more, a looser bound keeps the search short."""
CLOSE = 1e-9
"""Relative differences of time that make no difference."""


def split_over(times: Sequence[float], devices: Sequence[int]) -> Partition:
    """Consecutive layers in as many non-empty chunks as ``devices`` names, so that the slowest device is fastest; chunk
    c sits on ``devices[c]``."""
    start = split(times, len(devices))  # also checks what was given
    if len(set(devices)) == len(devices):
        return start._replace(devices=tuple(devices))
    best = start._replace(devices=tuple(devices))
    close = CLOSE * sum(times)
    low = lower_bound(times, devices)
    target, unproven = low, 0
    while best.slowest - low > 2 * close and unproven < MOST_TRIES:
        search = _Search(times, devices, target + close)
        ends = search.find()
        if ends is not None:
            best = _cut(times, devices, ends)
        else:
            low, unproven = target, unproven + (not search.complete)
        target = (low + best.slowest) / 2
    return best._replace(proven=not unproven)


def _cut(times: Sequence[float], devices: Sequence[int], ends: Sequence[int]) -> Partition:
    bounds = [0, *ends]
    sizes = tuple(b - a for a, b in pairwise(bounds))
    return Partition(sizes, tuple(sum(times[a:b]) for a, b in pairwise(bounds)), tuple(devices))


def lower_bound(times: Sequence[float], devices: Sequence[int]) -> float:
    """A time that the slowest device needs in any case: first and last layer on their devices, the others anywhere."""
    count, total = len(set(devices)), sum(times)
    pinned = dict.fromkeys(devices, 0.0)
    pinned[devices[0]] += times[0]
    pinned[devices[-1]] += times[-1]
    plain = max(total / count, max(times), *pinned.values())
    sums = _sums(times[1:-1])
    if sums is None:
        return plain
    close = CLOSE * total

    def most(limit: float) -> float:
        """What all devices can hold under a limit."""
        room = (limit - own for own in pinned.values())
        return (
            total - sum(times[1:-1]) + sum(sums[bisect_right(sums, one + close) - 1] for one in room if one >= -close)
        )

    limits = sorted({own + one for own in pinned.values() for one in sums if own + one >= plain - close})
    place = bisect_left(limits, True, key=lambda limit: most(limit) >= total - close)
    return max(plain, limits[place]) if place < len(limits) else plain


def _sums(times: Sequence[float]) -> list[float] | None:
    """All sums of some of the times, in order; None where there are very many."""
    scale = CLOSE * (sum(times) or 1.0)
    found = {0: 0.0}
    for time in times:
        found.update({round((one + time) / scale): one + time for one in found.values()})
        if len(found) > MOST_SUMS:
            return None
    return sorted(found.values())


class _Search:
    """A split with no device above ``limit``; ``complete`` where it has seen all that might be one."""

    def __init__(self, times: Sequence[float], devices: Sequence[int], limit: float) -> None:
        self.devices, self.limit = devices, limit
        self.total = [0.0, *accumulate(times)]
        self.fair = self.total[-1] / len(set(devices))
        self.later = [devices[chunk:].count(device) for chunk, device in enumerate(devices)]
        self.loads = dict.fromkeys(devices, 0.0)
        self.seen: set[tuple[object, ...]] = set()
        self.complete = True

    def find(self) -> list[int] | None:
        """Where each chunk ends; None where there is no such split or it was not found."""
        ends: list[int] = []
        choices = [self._ends(0, 0)]
        while choices:
            chunk = len(choices) - 1
            begin = ends[chunk - 1] if chunk else 0
            if len(ends) > chunk:  # take back what was tried
                self.loads[self.devices[chunk]] -= self.total[ends.pop()] - self.total[begin]
            end = next(choices[-1], None)
            if end is None:
                choices.pop()
                continue
            ends.append(end)
            self.loads[self.devices[chunk]] += self.total[end] - self.total[begin]
            if chunk + 1 == len(self.devices):
                return ends
            if self._open(chunk + 1, end):
                choices.append(self._ends(chunk + 1, end))
        return None

    def _open(self, chunk: int, begin: int) -> bool:
        """Whether a state is worth looking at: not seen before, and with room for all that is left."""
        left = set(self.devices[chunk:])
        rest = self.total[-1] - self.total[begin]
        if sum(self.limit - self.loads[device] for device in left) < rest:
            return False
        digits = CLOSE * self.total[-1]
        state = (chunk, begin, *(round(self.loads[device] / digits) for device in sorted(left)))
        if state in self.seen:
            return False
        if len(self.seen) >= MOST_VISITS:
            self.complete = False
            return False
        self.seen.add(state)
        return True

    def _ends(self, chunk: int, begin: int) -> Iterator[int]:
        """Ends of a chunk that leave layers for those after it, the one that shares its device's time evenly first."""
        layers = len(self.total) - 1
        last = layers - (len(self.devices) - chunk - 1)
        room = self.limit - self.loads[self.devices[chunk]]
        most = min(last, bisect_right(self.total, self.total[begin] + room) - 1)
        least = layers if chunk + 1 == len(self.devices) else begin + 1
        even = self.total[begin] + (self.fair - self.loads[self.devices[chunk]]) / self.later[chunk]
        return iter(sorted(range(least, most + 1), key=lambda end: abs(self.total[end] - even)))
