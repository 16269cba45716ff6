"""Building-block schedules on a V: repeat a block every six slots, squeeze it, reorder its two ends without raising the
peak memory (Qi et al. 2024, Pipeline parallelism with controllable memory, sections 3 and 4; the greedy reordering is
that of the authors' code). V-Half and V-Min are two such blocks.

Kinds are numbered as in a block: 0 forward down, 1 forward up, 2 input gradient of chunk 1, 3 input gradient of chunk
0, then the weight gradients. ``times[s][kind][i]`` is the slot of micro-batch i.
"""

from __future__ import annotations

from bisect import insort

from distsim.schedules.action import Action, Orders, wave_chunk

PERIOD = 6
"""Slots of a stage's work on one micro-batch: forward, input and weight gradient of two chunks, or a forward of one
and a whole backward of two."""
Times = list[list[list[int]]]


def order(stages: int, micro: int, block: list[list[int]]) -> Orders:
    """The order that grows out of ``block[s] = [F0, F1, I1, I0]``, the slots of one micro-batch on stage s."""
    times = [[list(range(x, x + PERIOD * micro, PERIOD)) for x in row] for row in block]
    times = [[*row, put_weights(row)[0]] for row in times]
    Reorder(times, weights=True).run()
    times = [row[:4] for row in squeeze(times)[0]]
    Reorder(times, weights=False).run()
    times = [[*row, put_weights(row)[0]] for row in times]
    times = [row[:4] for row in squeeze(times)[0]]
    times = [[*row, *put_weights(row, split=True)] for row in times]
    return [_read(s, stages, line) for s, line in enumerate(squeeze(times)[1])]


def put_weights(row: list[list[int]], split: bool = False) -> list[list[int]]:
    """Weight gradients in the free slots after their input gradients; ``split`` keeps the two chunks apart."""
    kinds = {slot: kind for kind, slots in enumerate(row[:4]) for slot in slots}
    due = [0, 0]
    weights: list[list[int]] = [[], []]
    bound = max(kinds)
    for slot in range(bound + 1 + 2 * len(row[0])):
        kind = kinds.get(slot)
        if kind is None:
            for which in (0, 1):
                if due[which]:
                    weights[which].append(slot)
                    due[which] -= 1
                    break
        elif kind >= 2:
            due[kind - 2 if split else 0] += 1
    return weights if split else weights[:1]


def _sequence(times: Times) -> list[tuple[int, int, int, int]]:
    """All actions as (slot, stage, kind, micro-batch), by time."""
    return sorted(
        (slot, s, kind, i)
        for s, row in enumerate(times)
        for kind, slots in enumerate(row)
        for i, slot in enumerate(slots)
    )


def squeeze(times: Times) -> tuple[Times, list[list[tuple[int, int]]]]:
    """Every action as early as its dependencies allow, in unchanged order; also the order per stage."""
    last = len(times) - 1
    result = [[[0] * len(slots) for slots in row] for row in times]
    free = [0] * len(times)
    lines: list[list[tuple[int, int]]] = [[] for _ in times]
    for _, s, kind, i in _sequence(times):
        at = max(free[s], _ready(result, s, kind, i, last) + 1)
        result[s][kind][i] = at
        free[s] = at + 1
        lines[s].append((kind, i))
    return result, lines


def _ready(times: Times, s: int, kind: int, i: int, last: int) -> int:
    """The last slot of what an action waits for, -1 if nothing; its own queue of micro-batches counts."""
    at = times[s][kind][i - 1] if i else -1
    if kind in (0, 2) and s > 0:
        at = max(at, times[s - 1][kind][i])
    if kind in (1, 3) and s < last:
        at = max(at, times[s + 1][kind][i])
    if 0 < kind < 4:
        at = max(at, times[s][kind - 1][i])
    return at


class Reorder:
    """Moves actions of the ramp-up (with weights) and of the ramp-down to earlier free slots."""

    def __init__(self, times: Times, weights: bool) -> None:
        self.times, self.weights = times, weights
        self.sequence = _sequence(times)
        width = max(slot for slot, *_ in self.sequence) + 1
        self.grid = [[-1] * width for _ in times]
        for slot, s, kind, _ in self.sequence:
            self.grid[s][slot] = kind
        self.held = [[0] * width for _ in times]
        self.due = [[0] * width for _ in times]
        self.limit = max(self._fill(s, 0) for s in range(len(times)))
        self.gradients: list[list[int]] = [[] for _ in times]

    def run(self) -> None:
        """The block in the middle, from stage 0's first backward of chunk 0 to its last forward, stays as it is."""
        last = len(self.times[0][0]) - 1
        phase = 0
        for slot, s, kind, i in self.sequence:
            if phase == 0 and kind == 3 and s == 0:
                phase = 1
            stay = phase == 1 or (phase == 0 and not self.weights)
            if phase == 1 and kind == 0 and i == last:
                phase = 2
            if not stay:
                self._move(slot, s, kind, i)
            if kind in (2, 3):
                insort(self.gradients[s], self.times[s][kind][i])

    def _move(self, slot: int, s: int, kind: int, i: int) -> None:
        ready = _ready(self.times, s, kind, i, len(self.times) - 1)
        if kind == 4:
            ready = max(ready, self.gradients[s][i])
        earliest = ready + 1
        if self.weights and kind < 2:
            floor = slot
            while floor > earliest and self.held[s][floor - 1] < self.limit:
                floor -= 1
            earliest = floor
        row = self.grid[s]
        for at in range(earliest, slot):
            if row[at] != -1:
                continue
            row[at], row[slot] = kind, -1
            if self._fill(s, at, None if not self.weights else slot) <= self.limit:
                self.times[s][kind][i] = at
                return
            row[at], row[slot] = -1, kind
            self._fill(s, at, None if not self.weights else slot)

    def _fill(self, s: int, start: int, stop: int | None = None) -> int:
        """Recount what stage s holds from slot ``start`` on; returns the peak there. Without explicit weight gradients
        one is taken to run in each free slot while any is due."""
        row, held, due = self.grid[s], self.held[s], self.due[s]
        now, waiting = (held[start - 1], due[start - 1]) if start else (0, 0)
        peak = now
        for slot in range(start, len(row) if stop is None else stop + 1):
            kind = row[slot]
            if kind in (0, 1):
                now += 1
            elif kind == 4:
                now -= 1
            elif kind in (2, 3):
                waiting += 1
            elif not self.weights and waiting:
                now, waiting = now - 1, waiting - 1
            held[slot], due[slot] = now, waiting
            peak = max(peak, now)
        return peak


def _read(stage: int, stages: int, line: list[tuple[int, int]]) -> list[Action]:
    names = (("F", 0), ("F", 1), ("I", 1), ("I", 0), ("W", 1), ("W", 0))
    return [(names[kind][0], wave_chunk(names[kind][1], stage, stages), i) for kind, i in line]
