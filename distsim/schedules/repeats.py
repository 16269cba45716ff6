"""Orders whose middle repeats: a head, a block so many times over, each time some micro-batches further, and a tail.

What a stage does in the steady state of a schedule is the same in every round of micro-batches, so that an order of a
million of them is described by a few. It reads like the list of its actions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from distsim.schedules.action import Action

T = TypeVar("T")
FEW_ROUNDS = 8
"""Rounds of as many micro-batches as there are stages after which a named schedule has filled: from there on each
further round puts one more block into every stage's order (tests/test_repeats.py builds both)."""
MANY_ACTIONS = 20_000
"""Of a schedule, from which on telling it by its blocks is worth it."""


class Repeats(Sequence[T]):
    """``head``, ``times`` over ``block``, ``tail``. The first block is ``step`` behind what is written, the next twice;
    the tail is moved by all of them. ``move`` puts one thing so much further."""

    __slots__ = ("block", "head", "move", "step", "tail", "times")

    def __init__(
        self, head: Sequence[T], block: Sequence[T], times: int, tail: Sequence[T], step: Any,
        move: Callable[[T, Any], T],
    ) -> None:  # fmt: skip
        self.head, self.block, self.times, self.tail = head, block, times, tail
        self.step, self.move = step, move

    def __len__(self) -> int:
        return len(self.head) + self.times * len(self.block) + len(self.tail)

    def __iter__(self) -> Iterator[T]:
        yield from self.head
        for turn in range(1, self.times + 1):
            yield from (self.move(one, turn * self.step) for one in self.block)
        yield from (self.move(one, self.times * self.step) for one in self.tail)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        place = range(len(self))[at] - len(self.head)
        if place < 0:
            return self.head[place + len(self.head)]
        turn, inside = divmod(place, len(self.block)) if self.times else (0, place)
        if turn < self.times:
            return self.move(self.block[inside], (turn + 1) * self.step)
        return self.move(self.tail[place - self.times * len(self.block)], self.times * self.step)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    def short(self, times: int = 0) -> list[T]:
        """The sequence with its block only ``times`` times."""
        return list(Repeats(self.head, self.block, times, self.tail, self.step, self.move))


def further(action: Action, micro: int) -> Action:
    """An action ``micro`` micro-batches later; of a fused block, both halves."""
    kind, chunk, i, *pair = action
    return (kind, chunk, i + micro, pair[0], pair[1] + micro) if pair else (kind, chunk, i + micro)


def short(order: Sequence[T]) -> Sequence[T]:
    """An order with its blocks once: it has the same kinds of actions, and a stage holds as much at its moments."""
    return order.short(1) if isinstance(order, Repeats) else order


class Timed(NamedTuple):
    """An action and its start; ``times`` of them, each ``apart`` seconds and ``step`` micro-batches behind the last."""

    action: Action
    start: float
    times: int = 1
    apart: float = 0.0
    step: int = 0


def timed(order: Sequence[Action], starts: Sequence[float]) -> Iterator[Timed]:
    """The actions of a stage with their starts; repeating ones are given once, at their first time."""
    if not isinstance(order, Repeats) or not isinstance(starts, Repeats):
        yield from map(Timed, order, starts)
        return
    begin, length, times = len(starts.head), len(starts.block), starts.times
    yield from map(Timed, order[:begin], starts.head)
    for action, start in zip(order[begin : begin + length], starts.block, strict=True):
        yield Timed(action, start + starts.step, times, starts.step, order.step)
    yield from map(Timed, order[begin + times * length :], starts[begin + times * length :])


def by_rounds(
    make: Callable[[int], Sequence[Sequence[Action]]], stages: int, micro: int, directions: int
) -> list[Repeats[Action]] | None:
    """The orders that ``make`` gives for so many micro-batches, from those for few and for a round more; None where
    these do not differ by one block in every stage. Micro-batches count in each of the ``directions`` by itself."""
    few = FEW_ROUNDS * stages + micro % stages
    rounds = (micro - few) // stages
    if rounds < 1 or stages % directions:
        return None
    found = []
    for less, more in zip(make(few), make(few + stages), strict=True):
        repeats = _between(less, more, rounds, stages // directions)
        if repeats is None:
            return None
        found.append(repeats)
    return found


def _between(less: Sequence[Action], more: Sequence[Action], times: int, step: int) -> Repeats[Action] | None:
    """What one order has more than another, as a block that follows one like it."""
    length = len(more) - len(less)
    at = next((place for place, one in enumerate(less) if one != more[place]), len(less))
    block = more[at - length : at]
    told = less[:at], block
    if at < length or Repeats(*told, 1, less[at:], step, further) != more:
        return None
    return Repeats(*told, times, less[at:], step, further)
