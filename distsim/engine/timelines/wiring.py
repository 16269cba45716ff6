"""Times of actions, delays of transfers, and how they connect the actions of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distsim.schedules.action import Schedule


class Costs(NamedTuple):
    """Seconds per chunk of every kind of action; ``fused`` (per forward chunk) replaces the sum in a fused block.
    ``trailing`` is the end of a backward, or of its input gradient, that the stage before does not wait for."""

    forward: Sequence[float]
    backward: Sequence[float]
    input_gradient: Sequence[float]
    weight_gradient: Sequence[float]
    fused: Sequence[float] | None = None
    trailing: Sequence[float] | None = None

    def duration(self, action: tuple[Any, ...]) -> float:
        """How long one action keeps its stage."""
        kind, chunk = str(action[0]), int(action[1])
        if kind == "F":
            return self.forward[chunk]
        if kind == "B":
            return self.backward[chunk]
        if kind == "FB":
            return self.forward[chunk] + self.backward[action[3]] if self.fused is None else self.fused[chunk]
        return self.input_gradient[chunk] if kind == "I" else self.weight_gradient[chunk]


class Transfers(NamedTuple):
    """Delays between stages. ``hops`` holds one delay, or one per link: link r joins stages r and r+1, the last of p
    joins stages p-1 and 0 (with two stages the only link). ``rendezvous``: a transfer starts when the receiver has
    reached the action that needs it. ``blocking``: the sender computes nothing meanwhile. ``exclusive``: a link carries
    one transfer per direction at a time."""

    hops: float | Sequence[float] = 0.0
    rendezvous: bool = False
    blocking: bool = False
    exclusive: bool = False

    def delay(self, sender: int, receiver: int, stages: int) -> float:
        """Seconds from one stage to another; none within a stage."""
        if sender == receiver:
            return 0.0
        if not isinstance(self.hops, Sequence):
            return self.hops
        low, high = sorted((sender, receiver))
        if high - low == stages - 1 and stages > 2:
            return self.hops[stages - 1]
        return sum(self.hops[low:high])


Arrivals = list[float | None]  # when each micro-batch is there, None before that is known


class Way(NamedTuple):
    """How one kind of action of one chunk runs: where its input arrives, its time, and where its output goes."""

    inputs: Arrivals | None
    pull: float
    duration: float
    outputs: Arrivals | None
    push: float
    link: list[float] | None


Ways = dict[str, list[tuple[Way, int]]]


class Wiring:
    """Builds the ``Way`` of every kind and chunk; both ends of a transfer share one list of arrivals."""

    def __init__(self, schedule: Schedule, micro: int, costs: Costs, transfers: Transfers) -> None:
        self.placement, self.stages = schedule.placement, len(schedule.orders)
        self.micro, self.costs, self.transfers = micro, costs, transfers
        self.arrivals: dict[tuple[str, int], Arrivals] = {}
        self.links: dict[tuple[int, int], list[float]] = {}

    def ways(self, chains: Sequence[Sequence[int]]) -> Ways:
        """For every kind and chunk its way, and the stage that its input comes from."""
        found: dict[str, dict[int, tuple[Way, int]]] = {kind: {} for kind in ("F", "B", "I", "W", "FB")}
        for chain in chains:
            for at, chunk in enumerate(chain):
                before, after = _neighbour(chain, at - 1), _neighbour(chain, at + 1)
                found["F"][chunk] = self._way("F", chunk, before, after)
                found["B"][chunk] = self._way("B", chunk, after, before)
                found["I"][chunk] = self._way("I", chunk, after, before)
                found["W"][chunk] = self._way("W", chunk, None, None)
                fused = self.costs.fused
                whole = Way(None, 0.0, 0.0 if fused is None else fused[chunk], None, 0.0, None)
                found["FB"][chunk] = (whole, int(fused is None))
        return {kind: [found[kind][chunk] for chunk in range(len(found[kind]))] for kind in found}

    def _way(self, kind: str, chunk: int, source: int | None, target: int | None) -> tuple[Way, int]:
        here, family = self.placement[chunk], "F" if kind == "F" else "B"
        inputs = outputs = link = None
        pull = push = 0.0
        owner = here
        if source is not None:
            inputs = self.arrivals.setdefault((family, chunk), [None] * self.micro)
            owner = self.placement[source]
            pull = self.transfers.delay(owner, here, self.stages) if self.transfers.rendezvous else 0.0
        if target is not None:
            outputs = self.arrivals.setdefault((family, target), [None] * self.micro)
            there = self.placement[target]
            push = 0.0 if self.transfers.rendezvous else self.transfers.delay(here, there, self.stages)
            if family == "B" and self.costs.trailing is not None:
                push -= self.costs.trailing[chunk]
            if push and self.transfers.exclusive:
                link = self.links.setdefault((here, there), [0.0])
        return Way(inputs, pull, self.costs.duration((kind, chunk)), outputs, push, link), owner


def _neighbour(chain: Sequence[int], at: int) -> int | None:
    return chain[at] if 0 <= at < len(chain) else None
