"""ZB-p: a zero-bubble order found for the given times under a memory limit (Qi et al. 2023, Zero bubble pipeline
parallelism, section 4). The greedy heuristic of the paper is tried with its three switches in all eight settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from distsim.errors import DistsimError
from distsim.schedules.action import Action, Orders


class Times(NamedTuple):
    """Seconds per stage of the three passes, and of a hop."""

    forward: Sequence[float]
    input_gradient: Sequence[float]
    weight_gradient: Sequence[float]
    hop: float = 0.0


def order(stages: int, micro: int, chunks: int = 1, limit: int | None = None, times: Times | None = None) -> Orders:
    """The order with the shortest longest stage. A stage holds at most ``limit`` micro-batches from forward to weight
    gradient (default 2 stages, the paper's ZB-2p)."""
    limit = 2 * stages if limit is None else limit
    if limit < 1:
        raise DistsimError(f"a memory limit of {limit} micro-batches per stage holds none", "give at least 1")
    times = times or Times([1] * stages, [1] * stages, [1] * stages)
    tries = (_Greedy(stages, micro, limit, times, switches).run() for switches in product((True, False), repeat=3))
    return min(tries, key=lambda greedy: greedy.longest()).orders


class _Greedy:
    """Builds all stages' orders micro-batch by micro-batch: forwards down the stages, input gradients back up."""

    def __init__(self, stages: int, micro: int, limit: int, times: Times, switches: tuple[bool, ...]) -> None:
        self.stages, self.micro, self.limit, self.times = stages, micro, limit, times
        self.bubble_before_first, self.prefer_backward, self.fill_early = switches
        self.orders: Orders = [[] for _ in range(stages)]
        self.count = {kind: [0] * stages for kind in "FIW"}
        self.ends: dict[str, list[list[float]]] = {kind: [[] for _ in range(stages)] for kind in "FI"}
        self.now = [0.0] * stages
        self.begin = [0.0] * stages
        self.bubble = [0.0] * stages
        self.cost = {"F": times.forward, "I": times.input_gradient, "W": times.weight_gradient}

    def longest(self) -> float:
        """Span of the slowest stage, from its first start to its last end."""
        return max(end - begin for end, begin in zip(self.now, self.begin, strict=True))

    def run(self) -> _Greedy:
        last = self.stages - 1
        for s in range(self.stages):
            self._put(s, "F")
        for s, extra in enumerate(self._warmup()):
            for _ in range(extra):
                self._put(s, "F")
        for s in range(last, -1, -1):
            self._put(s, "I")
        for _ in range(1, self.micro):
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
        for s in range(self.stages):
            self._weights(s, self.micro)
        return self

    def _held(self, s: int) -> int:
        return self.count["F"][s] - self.count["W"][s]

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
        due = max(0, min(self._held(s) + 1 - self.limit, self.count["I"][s] - self.count["W"][s]))
        if self.now[s] + self.cost["F"][s] + due * self.cost["W"][s] <= after:
            return False
        return after - self.now[s] <= max(0.0, *self.bubble) - self.bubble[s]

    def _make_room(self, s: int) -> None:
        while self._held(s) >= self.limit:
            self._put(s, "W")

    def _fill(self, s: int, ready: float | None) -> None:
        """Weight gradients in the wait for ``ready``; one more that overruns it where the wait is worth it."""
        if ready is None:
            return
        count, cost = self.count, self.cost["W"][s]
        while count["W"][s] < count["I"][s] and self.now[s] + cost <= ready:
            self._put(s, "W")
        if count["W"][s] < count["I"][s] and self.now[s] < ready:
            slack = max(0.0, *self.bubble) - self.bubble[s]
            if ready - self.now[s] > slack or self.fill_early:
                self._put(s, "W")
