"""The event simulation of orders whose middle repeats: a few blocks are run, and where they settle all others follow.

An action starts when the one before it on its stage and the one that its input comes from let it. Where over as many
blocks as inputs reach back every action of every stage starts the same time after its like in the block before, so it
does in all further ones, by induction over what waits for what; what follows the blocks is moved by as much. Times are
first put into whole numbers of a binary tick, so that sums are exact and "the same" means equal to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from distsim.arrays import ceil_div
from distsim.engine.timelines.wiring import Costs, Transfers
from distsim.schedules.action import Action, Schedule
from distsim.schedules.repeats import Repeats

MANTISSA = 52
"""Bits of a float: so many ticks can be counted."""
BLOCKS_TRIED = (1, 4, 16, 64)
"""How many times as many blocks are run as inputs reach over, one after another, until they settle."""


class Settled(NamedTuple):
    """A short run that stands for a long one: its schedule, with which costs it is to be run, and the blocks (counted
    from the head's end) of which the last is taken to repeat, as many as have to agree."""

    schedule: Schedule
    micro: int
    costs: Costs
    transfers: Transfers
    blocks: int
    reach: int


def repeating(schedule: Schedule, transfers: Transfers) -> list[Repeats[Action]] | None:
    """The orders, where all repeat as often as each other and links remember nothing that starts do not show."""
    orders = [order for order in schedule.orders if isinstance(order, Repeats)]
    alike = len({(order.times, order.step) for order in orders}) == 1
    whole = len(orders) == len(schedule.orders)
    return orders if whole and alike and not transfers.exclusive and not transfers.blocking else None


def short_runs(
    schedule: Schedule, orders: Sequence[Repeats[Action]], micro: int, costs: Costs, transfers: Transfers
) -> list[Settled]:
    """Runs of ever more blocks, the first of which that settles will do."""
    reach = _reach(schedule, orders)
    found = []
    for factor in BLOCKS_TRIED:
        blocks = (2 * factor + 1) * reach
        if 2 * blocks > orders[0].times:
            break
        less = round((orders[0].times - blocks) * orders[0].step)
        few = schedule._replace(orders=[order.short(blocks) for order in orders])
        ticks = _in_ticks(costs, transfers, sum(map(len, few.orders)))
        found.append(Settled(few, micro - less, *ticks, blocks - reach, reach))
    return found


def period(run: Settled, orders: Sequence[Repeats[Action]], starts: Sequence[Sequence[float]]) -> float | None:
    """Seconds from one block to the next, where the blocks that decide all are apart by the same on every stage."""
    apart = set()
    for order, line in zip(orders, starts, strict=True):
        length = len(order.block)
        end = len(order.head) + run.blocks * length
        window = range(end - run.reach * length, end)
        apart |= {line[at] - line[at - length] for at in window}
        if len(apart) > 1:
            return None
    return apart.pop()


def told(run: Settled, order: Repeats[Action], line: Sequence[float], seconds: float) -> Repeats[float]:
    """The starts of a stage's whole order, from those of the short run."""
    length = len(order.block)
    end = len(order.head) + run.blocks * length
    times = order.times - run.blocks - run.reach
    return Repeats(line[:end], line[end - length : end], times, line[end:], seconds, _later)


def _later(start: float, seconds: float) -> float:
    return start + seconds


def _reach(schedule: Schedule, orders: Sequence[Repeats[Action]]) -> int:
    """Blocks back, or ahead, that an action may wait for: as far as neighbours in a chain are apart in what they do of
    the same micro-batch, and one."""
    first: dict[tuple[bool, int], int] = {}
    for order in orders:
        for action in order.block:
            halves = ((action[0] != "F", *action[1:3]),) if len(action) < 4 else (
                (False, *action[1:3]), (True, *action[3:]))  # fmt: skip
            for backward, chunk, micro in halves:
                if action[0] != "W":
                    first[backward, chunk] = min(micro, first.get((backward, chunk), micro))
    apart = [
        abs(first[backward, one] - first[backward, other])
        for chain in schedule.chains for one, other in pairwise(chain) for backward in (False, True)
    ]  # fmt: skip
    return int(ceil_div(max(apart, default=0), int(orders[0].step))) + 1


def _in_ticks(costs: Costs, transfers: Transfers, actions: int) -> tuple[Costs, Transfers]:
    """Costs and transfers in whole numbers of a tick, which is so large that the sum over all actions is exact."""
    hops = transfers.hops if isinstance(transfers.hops, Sequence) else [transfers.hops]
    longest = max(max(each, default=0.0) for each in (*(one for one in costs if one is not None), hops))
    bits = MANTISSA - math.frexp(longest)[1] - (2 * actions).bit_length()
    whole = _rounded(2.0**bits)
    moved = whole(hops) if isinstance(transfers.hops, Sequence) else whole(hops)[0]
    forward, backward, first, second = map(whole, costs[:4])
    fused, trailing = (None if one is None else whole(one) for one in (costs.fused, costs.trailing))
    return Costs(forward, backward, first, second, fused, trailing), transfers._replace(hops=moved)


def _rounded(scale: float) -> Callable[[Sequence[float]], list[float]]:
    return lambda times: [round(one * scale) / scale for one in times]
