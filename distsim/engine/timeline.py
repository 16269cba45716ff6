"""The event simulation of a pipeline: when every action of a schedule starts, for given times and delays.

Each stage runs its list in order. A forward waits for the forward of the chunk before it, a backward (or input
gradient) for that of the chunk after it; what crosses stages arrives one hop later. Stages are advanced until they block, so the
work is linear in the actions and nothing but the start of each is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distsim.engine.order_check import explain_deadlock
from distsim.schedules.action import Orders, Schedule


class Costs(NamedTuple):
    """Seconds per chunk of every kind of action; ``fused`` (per forward chunk) replaces the sum in a fused block."""

    forward: Sequence[float]
    backward: Sequence[float]
    input_gradient: Sequence[float]
    weight_gradient: Sequence[float]
    fused: Sequence[float] | None = None

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


class Timeline(NamedTuple):
    """Starts of all actions per stage (in the order of ``schedule.orders``), and sums per stage."""

    starts: list[list[float]]
    busy: list[float]
    first_start: list[float]
    last_end: list[float]

    @property
    def makespan(self) -> float:
        """Last end over all stages; the first start is 0."""
        return max(self.last_end)


class _Way(NamedTuple):
    """How one kind of action of one chunk runs: where its input arrives, its time, and where its output goes."""

    inputs: list[float | None] | None
    pull: float
    duration: float
    outputs: list[float | None] | None
    push: float
    link: list[float] | None


def simulate(schedule: Schedule, micro: int, costs: Costs, transfers: Transfers | None = None) -> Timeline:
    """Run a complete schedule (see ``order_check``) of at most ``micro`` micro-batches per chain."""
    ways = _ways(schedule, micro, costs, transfers or Transfers())
    blocking = bool(transfers and transfers.blocking)
    stages = len(schedule.orders)
    starts: list[list[float]] = [[] for _ in range(stages)]
    now = [0.0] * stages
    ends = [0.0] * stages
    waiting: list[list[tuple[int, list[float | None], int]]] = [[] for _ in range(stages)]
    ready = list(range(stages - 1, -1, -1))
    while ready:
        stage = ready.pop()
        blocked = _advance(schedule.orders[stage], starts[stage], ways, now, ends, stage, blocking)
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


Ways = dict[str, list[tuple[_Way, int]]]


def _ways(schedule: Schedule, micro: int, costs: Costs, transfers: Transfers) -> Ways:
    """For every kind and chunk its ``_Way``, and the stage that its input comes from."""
    placement, stages = schedule.placement, len(schedule.orders)
    arrivals: dict[tuple[str, int], list[float | None]] = {}
    links: dict[tuple[int, int], list[float]] = {}
    ways: Ways = {kind: [None] * len(placement) for kind in "FBIW"}  # type: ignore[list-item]
    for chain in schedule.chains:
        for kind in "FBIW":
            direction = 0 if kind == "W" else 1 if kind == "F" else -1
            for at, chunk in enumerate(chain):
                before, after = _neighbour(chain, at - direction), _neighbour(chain, at + direction)
                if not direction:
                    before = after = None
                family = "F" if kind == "F" else "B"
                inputs = None if before is None else arrivals.setdefault((family, chunk), [None] * micro)
                outputs = None if after is None else arrivals.setdefault((family, after), [None] * micro)
                here = placement[chunk]
                pull = transfers.delay(placement[before], here, stages) if before is not None else 0.0
                push = transfers.delay(here, placement[after], stages) if after is not None else 0.0
                link = None
                if push and transfers.exclusive and after is not None:
                    link = links.setdefault((here, placement[after]), [0.0])
                if transfers.rendezvous:
                    push = 0.0
                else:
                    pull = 0.0
                way = _Way(inputs, pull, costs.duration((kind, chunk)), outputs, push, link)
                ways[kind][chunk] = (way, here if before is None else placement[before])
    if costs.fused is not None or any(action[0] == "FB" for order in schedule.orders for action in order):
        ways["FB"] = [(_Way(None, 0.0, 0.0 if costs.fused is None else costs.fused[chunk], None, 0.0, None),
                       int(costs.fused is None)) for chunk in range(len(placement))]  # fmt: skip
    return ways


def _neighbour(chain: Sequence[int], at: int) -> int | None:
    return chain[at] if 0 <= at < len(chain) else None


def _advance(
    order: list[tuple[Any, ...]], starts: list[float], ways: Ways, clock: list[float], ends: list[float], stage: int,
    blocking: bool,
) -> tuple[int, list[float | None], int] | None:  # fmt: skip
    """Run a stage until it ends or blocks; returns what it waits for: (stage, arrivals, micro-batch)."""
    now, end = clock[stage], ends[stage]
    blocked = None
    for position in range(len(starts), len(order)):
        action = order[position]
        kind = action[0]
        if kind == "FB":
            result = _fused(action, ways, now)
            if isinstance(result, tuple):
                blocked = result
                break
            starts.append(result)
            now = end = result + _fused_duration(action, ways)
            for half, chunk, i in (("F", action[1], action[2]), ("B", action[3], action[4])):
                now = max(now, _publish(ways[half][chunk][0], i, end, blocking))
            continue
        chunk, i = action[1], action[2]
        (inputs, pull, duration, outputs, push, link), owner = ways[kind][chunk]
        if inputs is not None:
            arrival = inputs[i]
            if arrival is None:
                blocked = (owner, inputs, i)
                break
            if arrival > now:
                now = arrival
            if pull:
                now += pull
        starts.append(now)
        now += duration
        end = now
        if outputs is not None:
            if link is None and not blocking:
                outputs[i] = now + push
            else:
                now = _publish(ways[kind][chunk][0], i, now, blocking)
    clock[stage], ends[stage] = now, end
    return blocked


def _publish(way: _Way, i: int, end: float, blocking: bool) -> float:
    """Send what is ready at ``end``; returns when the stage may go on."""
    if way.outputs is None:
        return end
    begin = end if way.link is None else max(end, way.link[0])
    way.outputs[i] = begin + way.push
    if way.link is not None:
        way.link[0] = begin + way.push
    return begin + way.push if blocking else end


def _fused(action: tuple[Any, ...], ways: Ways, now: float) -> float | tuple[int, list[float | None], int]:
    """Start of a fused block: when both inputs are there. Or what it waits for."""
    pulled = 0.0
    for half, chunk, i in (("F", action[1], action[2]), ("B", action[3], action[4])):
        way, owner = ways[half][chunk]
        if way.inputs is not None:
            arrival = way.inputs[i]
            if arrival is None:
                return owner, way.inputs, i
            now = max(now, arrival)
            pulled = max(pulled, way.pull)
    return now + pulled


def _fused_duration(action: tuple[Any, ...], ways: Ways) -> float:
    whole, summed = ways["FB"][action[1]]
    forward, backward = ways["F"][action[1]][0], ways["B"][action[3]][0]
    return forward.duration + backward.duration if summed else whole.duration


def _timeline(orders: Orders, starts: list[list[float]], ends: list[float], costs: Costs) -> Timeline:
    times: dict[tuple[Any, ...], float] = {}
    busy = []
    for order in orders:
        total = 0.0
        counts: dict[tuple[Any, ...], int] = {}
        for action in order:
            key = (action[0], action[1], action[3]) if action[0] == "FB" else (action[0], action[1])
            counts[key] = counts.get(key, 0) + 1
        for key, count in counts.items():
            if key not in times:
                times[key] = costs.duration((key[0], key[1], 0, key[-1]))
            total += count * times[key]
        busy.append(total)
    return Timeline(starts, busy, [line[0] if line else 0.0 for line in starts], ends)
