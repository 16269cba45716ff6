"""Orders of split backwards in which every stage runs what is ready: forwards and input gradients as they arrive,
weight gradients where nothing else can run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate, product
from typing import NamedTuple

from distsim.schedules import split_passes
from distsim.schedules.action import Orders
from distsim.schedules.split_passes import NOTHING, Found, Loop, Times, Way, found

PATIENCE = (0.0, 0.5, 1.0)
"""What is tried of the share of a weight gradient that is not worth beginning."""


class _Rule(NamedTuple):
    """How a stage chooses. It also keeps to the limit of its memory."""

    ahead: Sequence[int]
    """Micro-batches per stage that may wait for their input gradient."""
    forward_first: bool
    """A forward goes before an input gradient where both are ready."""
    patience: float
    """A weight gradient waits where no more than this share of it would be done when the next pass arrives."""


def ways(stages: int, micro: int, limit: int, times: Times, kept: float) -> Iterator[Way]:
    """All rules; ``limit`` and ``kept`` as in the paper's heuristic, which need not allow more than ``micro``."""
    most = min(limit, micro)
    depths = {tuple(min(most, one) for one in depth) for depth in _depths(stages, most, times)}
    for rule in product(sorted(depths), (True, False), PATIENCE):
        yield partial(_run, stages, limit, times, _Rule(*rule), kept)


def _run(stages: int, limit: int, times: Times, rule: _Rule, kept: float, micro: int) -> Found:
    return _Ready(stages, micro, limit, times, rule, kept).run()


def round_trips(stages: int, times: Times) -> list[float]:
    """Seconds from the start of a stage's forward until its input gradient can start, at the soonest."""
    there_and_back = [a + b + 2 * times.hop for a, b in zip(times.forward, times.input_gradient, strict=True)]
    after = list(accumulate(reversed(there_and_back), initial=0.0))
    return [times.forward[s] + after[stages - 1 - s] for s in range(stages)]


def _depths(stages: int, limit: int, times: Times) -> Iterator[list[int]]:
    """How many micro-batches each stage may be ahead: as under 1F1B and under ZB-H2, as many as the busiest stage works
    on in a round trip, and the limit in proportion to the round trip."""
    yield [stages - s for s in range(stages)]
    yield [2 * (stages - s) - 1 for s in range(stages)]
    trips = [a + b for a, b in zip(round_trips(stages, times), times.input_gradient, strict=True)]
    work = max(map(sum, zip(*times[:3], strict=True)))
    for rate in (work, trips[0] / limit):
        yield [max(1, math.ceil(trip / rate - NOTHING)) if rate else limit for trip in trips]


_FORWARD, _GRADIENT, _WEIGHTS, _WAIT = range(4)


class _State(NamedTuple):
    """Where all stages are when the first begins a forward."""

    counts: Sequence[int]
    times: Sequence[float]
    micro: int
    now: float
    places: Sequence[int]


class _Ready:
    """Runs all stages moment by moment; each chooses when it is free or when something arrives while it waits."""

    def __init__(self, stages: int, micro: int, limit: int, times: Times, rule: _Rule, kept: float) -> None:
        self.stages, self.micro, self.kept, self.hop = stages, micro, kept, times.hop
        self.ahead, self.forward_first, self.patience = rule
        self.most = limit + NOTHING
        self.near = times.rounding()
        self.cost = times[:3]
        self.orders: Orders = [[] for _ in range(stages)]
        self.count = [[0] * stages for _ in range(3)]
        self.arrivals: list[list[list[float]]] = [[[] for _ in range(stages)] for _ in range(2)]
        """When the inputs of forwards, and of input gradients, are there; the ends of the chain need none."""
        self.now = [0.0] * stages
        self.begin = [0.0] * stages
        self.wake = [0.0] + [math.inf] * (stages - 1)
        """When each stage chooses next, as far as is known."""
        self.seen: _State | None = None
        self.loop: Loop | None = None
        self.looks = 1 if micro > split_passes.FEWER * stages >= limit else 0
        """Times that repeats have been looked for, counted from 1; 0 where they are not."""

    def run(self) -> Found:
        moments, wake, now, choice = [(0.0, 0)], self.wake, self.now, self._choice
        kinds = list(zip("FIW", self.cost, self.count, strict=True))
        ways = ((1, self.stages - 1, self.arrivals[0]), (-1, 0, self.arrivals[1]))
        while moments:
            at, s = heappop(moments)
            if at != wake[s]:
                continue
            kind, then = choice(s, at)
            if kind == _WAIT:
                wake[s] = then
                if then < math.inf:
                    heappush(moments, (then, s))
                continue
            if s == kind == 0 and self.looks:
                self._look(at)
            name, cost, count = kinds[kind]
            number = count[s]
            self.orders[s].append((name, s, number))
            count[s] = number + 1
            if kind == 0 == number:
                self.begin[s] = at
            now[s] = wake[s] = end = at + cost[s]
            heappush(moments, (end, s))
            if kind == _WEIGHTS:
                continue
            step, last, arrivals = ways[kind]
            if s != last:
                other, arrival = s + step, end + self.hop
                arrivals[other].append(arrival)
                if now[other] <= arrival < wake[other]:
                    wake[other] = arrival
                    heappush(moments, (arrival, other))
        return found(self.orders, self.begin, now, self.loop)

    def _choice(self, s: int, at: float) -> tuple[int, float]:
        """The kind of pass that a stage runs now; or none, and when it chooses again."""
        passed, returned, weighted = self.count
        number, done = passed[s], returned[s]
        ahead, waiting = number - done, done - weighted[s]
        late, forward, gradient = at + self.near, math.inf, math.inf
        if ahead < self.ahead[s] and ahead + 1 + self.kept * waiting <= self.most:
            arrivals = self.arrivals[0][s]
            if number < len(arrivals):
                forward = arrivals[number]
            elif s == 0 and number < self.micro:
                forward = 0.0
        if ahead:
            arrivals = self.arrivals[1][s]
            if done < len(arrivals):
                gradient = arrivals[done]
            elif s == self.stages - 1:
                gradient = 0.0
        if forward <= late and (self.forward_first or gradient > late):
            return _FORWARD, at
        if gradient <= late:
            return _GRADIENT, at
        then = forward if forward < gradient else gradient
        if waiting and then >= at + self.patience * self.cost[_WEIGHTS][s] - self.near:
            return _WEIGHTS, at
        return _WAIT, then

    def _look(self, at: float) -> None:
        """Where all stages stand as they once did, what repeats until the last forwards is taken as done. What they are
        compared with is renewed after twice as many looks each time, until it is a state that comes again."""
        base = self.count[0][0]
        counts = [count - base for each in self.count for count in each]
        seen = self.seen
        if seen is not None and counts == seen.counts:
            micro = base - seen.micro
            times = (self.micro - base - 1) // micro
            pairs = zip(self._times(at), seen.times, strict=True)
            if times > 0 and all(abs(one - other) <= self.near for one, other in pairs):
                self.micro -= times * micro
                self.loop = Loop(seen.places, self._places(), times, at - seen.now, micro)
                self.looks = 0
                return
        if self.looks & (self.looks - 1) == 0:
            self.seen = _State(counts, self._times(at), base, at, self._places())
        self.looks += 1

    def _times(self, at: float) -> list[float]:
        """When each stage is done, and when what waits for it or is on its way has come, from now."""
        pending = [
            one
            for each, counts in zip(self.arrivals, self.count, strict=False)
            for arrivals, count in zip(each, counts, strict=True)
            for one in arrivals[count:]
        ]
        return [one - at for one in self.now + pending]

    def _places(self) -> list[int]:
        return [len(order) for order in self.orders]
