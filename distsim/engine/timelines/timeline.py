"""The event simulation of a pipeline: when every action of a schedule starts, for given times and delays.

Each stage runs its list in order. A forward waits for the forward of the chunk before it, a backward (or input
gradient) for that of the chunk after it; what crosses stages arrives one hop later. Stages are advanced until they
block, so the work is linear in the actions and nothing but the start of each is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distsim.engine.timelines import steady
from distsim.engine.timelines.order_check import explain_deadlock
from distsim.engine.timelines.wiring import Arrivals, Costs, Transfers, Way, Ways, Wiring
from distsim.schedules.action import Action, Schedule
from distsim.schedules.repeats import Repeats

Wait = tuple[int, Arrivals, int]  # a stage (the one that owes, or the one that waits), arrivals, micro-batch


class Timeline(NamedTuple):
    """Starts of all actions per stage (in the order of ``schedule.orders``), and sums per stage."""

    starts: Sequence[Sequence[float]]
    busy: list[float]
    first_start: list[float]
    last_end: list[float]

    @property
    def makespan(self) -> float:
        """Last end over all stages; the first start is 0."""
        return max(self.last_end)


def simulate(
    schedule: Schedule, micro: int, costs: Costs, transfers: Transfers | None = None,
    later: Callable[..., Any] = max,
) -> Timeline:  # fmt: skip
    """Run a complete schedule (see ``order_check``) of at most ``micro`` micro-batches per chain. With numpy's maximum
    for ``later``, costs may be arrays, and times of the result are. Orders that repeat run until they settle."""
    repeated = steady.repeating(schedule, transfers or Transfers())
    if repeated is not None and later is max:
        found = _settled(schedule, repeated, micro, costs, transfers or Transfers())
        if found is not None:
            return found
        schedule = schedule._replace(orders=[list(order) for order in repeated])
    ways = Wiring(schedule, micro, costs, transfers or Transfers()).ways(schedule.chains)
    blocking = bool(transfers and transfers.blocking)
    stages = len(schedule.orders)
    starts: list[list[float]] = [[] for _ in range(stages)]
    now = [0.0] * stages
    ends = [0.0] * stages
    waiting: list[list[Wait]] = [[] for _ in range(stages)]
    ready = list(range(stages - 1, -1, -1))
    while ready:
        stage = ready.pop()
        blocked = _advance(schedule.orders[stage], starts[stage], ways, now, ends, stage, blocking, later)
        still = []
        for waiter in waiting[stage]:
            if waiter[1][waiter[2]] is None:
                still.append(waiter)
            else:
                ready.append(waiter[0])
        waiting[stage] = still
        if blocked is not None:
            owner, inputs, i = blocked
            if inputs[i] is None:
                waiting[owner].append((stage, inputs, i))
            else:
                ready.append(stage)
    position = [len(done) for done in starts]
    if any(done < len(order) for done, order in zip(position, schedule.orders, strict=True)):
        raise explain_deadlock(schedule, position)
    return _timeline(schedule.orders, starts, ends, costs)


def _settled(
    schedule: Schedule, orders: list[Repeats[Action]], micro: int, costs: Costs, transfers: Transfers
) -> Timeline | None:
    """The run of orders that repeat, from a short one; None where that does not settle."""
    for run in steady.short_runs(schedule, orders, micro, costs, transfers):
        few = simulate(run.schedule, run.micro, run.costs, run.transfers)
        seconds = steady.period(run, orders, few.starts)
        if seconds is None:
            continue
        starts = [steady.told(run, order, line, seconds) for order, line in zip(orders, few.starts, strict=True)]
        later = starts[0].times * seconds
        return _timeline(orders, starts, [end + later for end in few.last_end], run.costs)
    return None


def _advance(
    order: Sequence[Action], starts: list[float], ways: Ways, clock: list[float], ends: list[float], stage: int,
    blocking: bool, later: Callable[..., Any],
) -> Wait | None:  # fmt: skip
    """Run a stage until it ends or blocks; returns what it waits for."""
    now, end = clock[stage], ends[stage]
    blocked: Wait | None = None
    for position in range(len(starts), len(order)):
        action = order[position]
        kind = action[0]
        if kind == "FB":
            blocked, now, end = _run_fused(action, starts, ways, now, end, blocking, later)
            if blocked is not None:
                break
            continue
        chunk, i = action[1], action[2]
        (inputs, pull, duration, outputs, push, link), owner = ways[kind][chunk]
        if inputs is not None:
            arrival = inputs[i]
            if arrival is None:
                blocked = (owner, inputs, i)
                break
            now = later(now, arrival)
            if pull:
                now = now + pull
        starts.append(now)
        end = now = now + duration
        if outputs is not None:
            if link is None and not blocking:
                outputs[i] = now + push
            else:
                now = _publish(ways[kind][chunk][0], i, now, blocking)
    clock[stage], ends[stage] = now, end
    return blocked


def _run_fused(
    action: tuple[Any, ...],
    starts: list[float],
    ways: Ways,
    now: float,
    end: float,
    blocking: bool,
    later: Callable[..., Any],
) -> tuple[Wait | None, float, float]:
    """One fused block: it starts when both inputs are there, and both results appear at its end."""
    halves = (("F", action[1], action[2]), ("B", action[3], action[4]))
    begin = now
    for kind, chunk, i in halves:
        way, owner = ways[kind][chunk]
        if way.inputs is not None:
            arrival = way.inputs[i]
            if arrival is None:
                return (owner, way.inputs, i), now, end
            begin = later(begin, later(now, arrival) + way.pull)
    starts.append(begin)
    (whole, summed), forward, backward = ways["FB"][action[1]], ways["F"][action[1]][0], ways["B"][action[3]][0]
    end = begin + (forward.duration + backward.duration if summed else whole.duration)
    now = later(*(_publish(ways[kind][chunk][0], i, end, blocking) for kind, chunk, i in halves))
    return None, now, end


def _publish(way: Way, i: int, end: float, blocking: bool) -> float:
    """Send what is ready at ``end``; returns when the stage may go on."""
    if way.outputs is None:
        return end
    begin = end if way.link is None else max(end, way.link[0])
    way.outputs[i] = begin + way.push
    if way.link is not None:
        way.link[0] = begin + way.push
    return begin + way.push if blocking else end


def _timeline(
    orders: Sequence[Sequence[Action]], starts: Sequence[Sequence[float]], ends: list[float], costs: Costs
) -> Timeline:
    times: dict[tuple[Any, ...], float] = {}
    busy = []
    for order in orders:
        total = 0.0
        for key, count in _counts(order).items():
            if key not in times:
                times[key] = costs.duration((key[0], key[1], 0, key[-1]))
            total += count * times[key]
        busy.append(total)
    return Timeline(starts, busy, [line[0] if line else 0.0 for line in starts], ends)


def _counts(order: Sequence[Action]) -> dict[tuple[Any, ...], int]:
    """How often a stage does the same of the same chunk."""
    parts = ((order.head, 1), (order.block, order.times), (order.tail, 1)) if isinstance(order, Repeats) else (
        (order, 1),)  # fmt: skip
    counts: dict[tuple[Any, ...], int] = {}
    for actions, times in parts:
        for action in actions:
            key = (action[0], action[1], action[3]) if action[0] == "FB" else (action[0], action[1])
            counts[key] = counts.get(key, 0) + times
    return counts
