"""What orders of split backwards are sought for, the times of the passes, and what is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from distsim.schedules.action import Action, Orders
from distsim.schedules.repeats import Repeats, further

MANY = 16
"""Micro-batches per stage from which on an order is searched for repeats after every micro-batch; a stage may hold no
more than so many, as all that it holds are compared."""
FEWER = 4
"""The same where most looks compare only counts."""
NOTHING = 1e-9
"""Share of the longest pass below which a difference in times is only rounding."""


class Times(NamedTuple):
    """Seconds per stage of the three passes, and of a hop."""

    forward: Sequence[float]
    input_gradient: Sequence[float]
    weight_gradient: Sequence[float]
    hop: float = 0.0

    def rounding(self) -> float:
        """Seconds that tell no two moments apart."""
        return NOTHING * max(map(max, self[:3]))


class Seconds(NamedTuple):
    """How long an order takes: from the first start to the last end (its makespan), and the longest stage alone, from
    its own first start to its own last end."""

    whole: float
    span: float


class Found(NamedTuple):
    """An order of every stage, and how long it takes."""

    orders: Sequence[Sequence[Action]]
    seconds: Seconds


Way = Callable[[int], Found]
"""A heuristic: from a number of micro-batches to the order that it finds for them."""


class Loop(NamedTuple):
    """What repeats: where it begins and ends in each stage's order, how often more, how long it takes, and how many
    micro-batches it has."""

    begin: Sequence[int]
    end: Sequence[int]
    times: int
    seconds: float
    micro: int = 1


def found(orders: Orders, begins: Sequence[float], ends: Sequence[float], loop: Loop | None) -> Found:
    """The orders with their repeating parts given once, and their seconds; starts and ends are without the repeats."""
    longer = loop.times * loop.seconds if loop else 0.0
    span = max(end - begin for end, begin in zip(ends, begins, strict=True))
    seconds = Seconds(max(ends) + longer, span + longer)
    if loop is None:
        return Found(orders, seconds)
    told = [
        Repeats(order[:end], order[begin:end], loop.times, order[end:], loop.micro, further)
        for order, begin, end in zip(orders, loop.begin, loop.end, strict=True)
    ]
    return Found(told, seconds)


def timed(orders: Sequence[Sequence[Action]], times: Times) -> Seconds:
    """How long given orders take, of which a stage's passes are numbered in turn."""
    last, left = len(orders) - 1, [iter(order) for order in orders]
    following = [next(one, None) for one in left]
    arrived: dict[str, list[list[float]]] = {kind: [[] for _ in orders] for kind in "FI"}
    now = [0.0] * len(orders)
    begin: list[float | None] = [None] * len(orders)
    cost = dict(zip("FIW", times[:3], strict=True))
    while any(following):
        for s in (*range(last + 1), *range(last, -1, -1)):
            while (action := following[s]) is not None:
                kind, _, i = action
                if kind != "W" and s != (0 if kind == "F" else last):
                    inputs = arrived[kind][s]
                    if len(inputs) <= i:
                        break
                    now[s] = max(now[s], inputs[i])
                if begin[s] is None:
                    begin[s] = now[s]
                now[s] += cost[kind][s]
                there = s + 1 if kind == "F" else s - 1
                if kind != "W" and 0 <= there <= last:
                    arrived[kind][there].append(now[s] + times.hop)
                following[s] = next(left[s], None)
    return Seconds(max(now), max(end - (first or 0.0) for end, first in zip(now, begin, strict=True)))
