"""The zero-bubble paper's heuristic for an order that fits given times (Qi et al. 2023, Zero bubble pipeline
parallelism, section 4), with its three switches in all eight settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from distsim.schedules import split_passes
from distsim.schedules.action import Action, Orders
from distsim.schedules.split_passes import NOTHING, Found, Loop, Times, Way, found


def order(stages: int, micro: int, limit: int) -> Sequence[Sequence[Action]]:
    """The order for equal times, which the first setting finds (tests/test_zb_auto.py)."""
    equal = [1.0] * stages
    return next(ways(stages, limit, Times(equal, equal, equal), 1.0))(micro).orders


def ways(stages: int, limit: int, times: Times, kept: float) -> Iterator[Way]:
    """The heuristic in all settings. A stage holds at most the memory of ``limit`` micro-batches: all of one from its
    forward to its input gradient, then the share ``kept`` that its weight gradient reads (the paper's M_W over M_B).
    Where a micro-batch leaves all stages as the one before did, as it soon does where they are alike, further ones do
    the same; they are counted instead of being walked through."""
    for switches in product((True, False), repeat=3):
        yield partial(_run, stages, limit, times, switches, kept)


def _run(stages: int, limit: int, times: Times, switches: tuple[bool, ...], kept: float, micro: int) -> Found:
    return _Greedy(stages, micro, limit, times, switches, kept).run()


class _State(NamedTuple):
    """Where all stages are after a micro-batch."""

    counts: Sequence[int]
    times: Sequence[float]
    now: float
    bubble: Sequence[float]
    places: Sequence[int]


class _Greedy:
    """Builds all stages' orders micro-batch by micro-batch: forwards down the stages, input gradients back up."""

    def __init__(
        self, stages: int, micro: int, limit: int, times: Times, switches: tuple[bool, ...], kept: float
    ) -> None:
        self.stages, self.micro, self.limit, self.times, self.kept = stages, micro, limit, times, kept
        self.bubble_before_first, self.prefer_backward, self.fill_early = switches
        self.orders: Orders = [[] for _ in range(stages)]
        self.count = {kind: [0] * stages for kind in "FIW"}
        self.ends: dict[str, list[list[float]]] = {kind: [[] for _ in range(stages)] for kind in "FI"}
        self.now = [0.0] * stages
        self.begin = [0.0] * stages
        self.bubble = [0.0] * stages
        self.cost = {"F": times.forward, "I": times.input_gradient, "W": times.weight_gradient}
        self.loop: Loop | None = None
        self.over: set[int] = set()
        """Stages that did something with this micro-batch because their slack is no greater."""

    def run(self) -> Found:
        last = self.stages - 1
        for s in range(self.stages):
            self._put(s, "F")
        for s, extra in enumerate(self._warmup()):
            for _ in range(extra):
                self._put(s, "F")
        for s in range(last, -1, -1):
            self._put(s, "I")
        before = self._state() if self.micro > split_passes.MANY * self.stages >= self.limit else None
        done = 1
        while done < self.micro:
            done += 1
            for s in self._forwards_wanted():
                self._make_room(s)
                self._fill(s, self.ends["F"][s - 1][self.count["F"][s]] + self.times.hop if s else None)
                self._put(s, "F")
            for s in range(last, -1, -1):
                ready = self.ends["I"][s + 1][self.count["I"][s]] + self.times.hop if s < last else None
                self._fill(s, ready)
                if s == 0 and self.count["F"][0] == self.micro:
                    self._weights(0, self.count["I"][0])
                self._put(s, "I")
            if before is not None and self.loop is None:
                before = self._looked(before)
        for s in range(self.stages):
            self._weights(s, self.micro)
        return found(self.orders, self.begin, self.now, self.loop)

    def _state(self) -> _State:
        """How the stages stand to each other. Counts are over the first stage's input gradients, times over when it is
        done."""
        base, done = self.now[0], self.count["I"][0]
        times = [now - base for now in self.now]
        for s in range(1, self.stages):
            times += [end - base for end in self.ends["F"][s - 1][self.count["F"][s] :]]
        counts = [count - done for each in self.count.values() for count in each]
        return _State(counts, times, base, list(self.bubble), [len(order) for order in self.orders])

    def _looked(self, before: _State) -> _State:
        """The state after a micro-batch; where all further ones do as this one did, all but the last few are taken as
        done."""
        state = self._state()
        times = self.micro - self.count["F"][0] - 1
        if times > 0 and state.counts == before.counts and self._goes_on(before, state):
            self.micro -= times
            self.bubble = [one + times * (one - other) for one, other in zip(self.bubble, before.bubble, strict=True)]
            self.loop = Loop(before.places, state.places, times, state.now - before.now)
        self.over.clear()
        return state

    def _goes_on(self, before: _State, state: _State) -> bool:
        """Whether nothing changes from one micro-batch to the next but how much stages have idled, and that no more
        decides anything: those that idle less than others do already what they would with any more slack."""
        near = self.times.rounding()
        if any(abs(one - other) > near for one, other in zip(state.times, before.times, strict=True)):
            return False
        rates = [one - other for one, other in zip(state.bubble, before.bubble, strict=True)]
        least = max(state.bubble) - max(rates)
        behind = [s for s, rate in enumerate(rates) if max(rates) - rate > near]
        return all(s not in self.over and state.bubble[s] < least for s in behind)

    def _beyond_slack(self, s: int, wait: float) -> bool:
        """Whether a wait is longer than what stage s has idled less than the one that idled most."""
        beyond = wait > max(0.0, *self.bubble) - self.bubble[s]
        if beyond:
            self.over.add(s)
        return beyond

    def _due(self, s: int) -> int:
        """Weight gradients that must go before another forward fits."""
        ahead, waiting = self.count["F"][s] - self.count["I"][s], self.count["I"][s] - self.count["W"][s]
        over = (ahead + 1 - self.limit) / self.kept + waiting
        return max(0, min(math.ceil(over - NOTHING), waiting))

    def _weights(self, s: int, until: int) -> None:
        while self.count["W"][s] < until:
            self._put(s, "W")

    def _put(self, s: int, kind: str) -> None:
        i = self.count[kind][s]
        start = self.now[s]
        if kind == "F" and s > 0:
            start = max(start, self.ends["F"][s - 1][i] + self.times.hop)
        if kind == "I" and s < self.stages - 1:
            start = max(start, self.ends["I"][s + 1][i] + self.times.hop)
        if self.count["F"][s]:
            self.bubble[s] += start - self.now[s]
        else:
            self.begin[s] = start
        self.now[s] = start + self.cost[kind][s]
        if kind != "W":
            self.ends[kind][s].append(self.now[s])
        self.count[kind][s] += 1
        action: Action = (kind, s, i)
        self.orders[s].append(action)

    def _warmup(self) -> list[int]:
        """Further forwards per stage before its first backward: as many as fit into the wait and the memory."""
        last = self.stages - 1
        extra = [0] * self.stages
        back = self.now[last] + self.cost["I"][last]
        for s in range(last - 1, -1, -1):
            cost = self.now[s]
            arrival = back + self.times.hop
            while 1 + extra[s] < min(self.micro, self.limit):
                beyond = cost + self.cost["F"][s] > arrival if self.bubble_before_first else cost >= arrival
                if beyond:
                    break
                cost += self.cost["F"][s]
                extra[s] += 1
            back = max(cost, arrival) + self.cost["I"][s]
        for s in range(1, self.stages):
            while extra[s] > 0 and extra[s] >= extra[s - 1] and 1 + extra[s] < self.micro:
                extra[s] -= 1
            extra[s] = min(extra[s], extra[s - 1])  # with all of them run ahead, none before the stage above has
        return extra

    def _forwards_wanted(self) -> list[int]:
        """Stages that run one more forward now: no stage runs ahead of one that pauses behind it."""
        wanted = [self.count["F"][s] < self.micro and not self._pause(s) for s in range(self.stages)]
        for s in range(self.stages - 2, -1, -1):
            wanted[s] = wanted[s] and wanted[s + 1]
        return [s for s in range(self.stages) if wanted[s]]

    def _pause(self, s: int) -> bool:
        """Whether stage s should rather wait for a backward than run another forward."""
        forward = self.count["F"]
        if not self.prefer_backward or s + 1 >= self.stages or forward[s] < forward[s + 1] + 2:
            return False
        after = self.now[s + 1] + self.cost["F"][s + 1] + self.cost["I"][s + 1] + self.times.hop
        if self.now[s] >= after:
            return True
        if self.now[s] + self.cost["F"][s] + self._due(s) * self.cost["W"][s] <= after:
            return False
        return not self._beyond_slack(s, after - self.now[s])

    def _make_room(self, s: int) -> None:
        self._weights(s, self.count["W"][s] + self._due(s))

    def _fill(self, s: int, ready: float | None) -> None:
        """Weight gradients in the wait for ``ready``; one more that overruns it where the wait is worth it."""
        if ready is None:
            return
        count, cost = self.count, self.cost["W"][s]
        while count["W"][s] < count["I"][s] and self.now[s] + cost <= ready:
            self._put(s, "W")
        open_gap = count["W"][s] < count["I"][s] and self.now[s] < ready
        if open_gap and (self.fill_early or self._beyond_slack(s, ready - self.now[s])):
            self._put(s, "W")
