"""1F1B-V: a V of two chunks with whole backwards, two thirds of 1F1B's memory (Qi et al. 2024, Pipeline parallelism
with controllable memory, section 3.3; the construction is that of the authors' code).

A building block places the two forwards and two backwards of one micro-batch in slots of one forward (a backward takes
two); repeated every six slots no two actions collide. Then everything is moved to the left as far as dependencies
and the block's peak memory allow.
"""

from __future__ import annotations

from distsim.schedules.action import Action, Orders, wave_chunk
from distsim.schedules.stable_pattern import PERIOD

_DOWN, _UP, _BACK_UP, _BACK_DOWN, _END_UP, _END_DOWN = range(6)  # two forwards, two backwards, their 2nd halves
_FREE = -1  # a slot in which nothing runs


def order(stages: int, micro: int, chunks: int = 2) -> Orders:
    """Forward down (chunk 0), forward up (chunk 1), backward of chunk 1 down, backward of chunk 0 up."""
    first = _first_slots(stages)
    width = max(max(row) for row in first) + PERIOD * micro + 2
    grid = [[_FREE] * width for _ in range(stages)]
    for s in range(stages):
        for kind, slot in enumerate(first[s]):
            for i in range(micro):
                grid[s][slot + PERIOD * i] = kind
    _squeeze(grid, micro)
    return [_read(grid[s], s, stages) for s in range(stages)]


def _residues(stages: int) -> list[list[int]]:
    """Slot of each kind in the building block, modulo the period. The way back pauses three slots after every third
    stage so that its backwards fall into the gaps between forwards."""
    table = [[0] * 6 for _ in range(stages)]
    now = 0
    for s in range(stages):
        now += 1
        table[s][_DOWN] = now
    for s in reversed(range(stages)):
        now += 1
        table[s][_UP] = now
    now += 4 if stages % 3 == 0 else 1
    turn = -(stages + 2) % 3
    for kind, end, way in (
        (_BACK_UP, _END_UP, range(stages)),
        (_BACK_DOWN, _END_DOWN, range(stages - 1, -1, -1)),
    ):
        for s in way:
            table[s][kind], table[s][end] = now, now + 1
            turn, now = turn + 1, now + 2
            if turn == 3:
                turn, now = 0, now + 3
    return [[slot % PERIOD for slot in row] for row in table]


def _first_slots(stages: int) -> list[list[int]]:
    """Where the first micro-batch goes: each step in the first slot of its residue after the step before it."""
    residues = _residues(stages)
    first = [[0] * 6 for _ in range(stages)]
    at = PERIOD
    down, up = list(range(stages)), list(range(stages - 1, -1, -1))
    for kind, way in ((_DOWN, down), (_UP, up), (_BACK_UP, down), (_BACK_DOWN, up)):
        for s in way:
            at += (residues[s][kind] - at) % PERIOD
            first[s][kind] = at
            at += 1
            if kind in (_BACK_UP, _BACK_DOWN):
                first[s][kind + 2] = at + (residues[s][kind + 2] - at) % PERIOD
    return first


def _squeeze(grid: list[list[int]], micro: int) -> None:
    """Move every action to the left, column by column, without raising the peak memory."""
    held = [_memory(row) for row in grid]
    peak = max(max(row) for row in held)
    where = [[[-1] * micro for _ in range(6)] for _ in grid]
    seen = [[0] * 6 for _ in grid]
    for column in range(len(grid[0])):
        for s, row in enumerate(grid):
            kind = row[column]
            if kind == _FREE:
                continue
            i = seen[s][kind]
            seen[s][kind] += 1
            earliest = 1 + max(_before(where, s, kind, i), where[s][kind][i - 1] if i else -1)
            target = _target(row, held[s], kind, earliest, column, peak)
            row[column] = _FREE
            row[target] = kind
            where[s][kind][i] = target
            change = 1 if kind in (_DOWN, _UP) else -1 if kind in (_END_UP, _END_DOWN) else 0
            if change:
                for slot in range(target, column):
                    held[s][slot] += change


def _memory(row: list[int]) -> list[int]:
    """Activations held after each slot; a chunk's are freed by the second half of its backward."""
    held, now = [], 0
    for kind in row:
        now += (kind in (_DOWN, _UP)) - (kind in (_END_UP, _END_DOWN))
        held.append(now)
    return held


def _before(where: list[list[list[int]]], s: int, kind: int, i: int) -> int:
    """Slot of what micro-batch ``i`` waits for."""
    last = len(where) - 1
    if kind in (_END_UP, _END_DOWN):
        return where[s][kind - 2][i]
    if kind == _DOWN:
        return where[s - 1][_DOWN][i] if s else -1
    if kind == _UP:
        return where[s + 1][_UP][i] if s < last else where[s][_DOWN][i]
    if kind == _BACK_UP:
        return where[s - 1][_END_UP][i] if s else where[s][_UP][i]
    return where[s + 1][_END_DOWN][i] if s < last else where[s][_END_UP][i]


def _target(row: list[int], held: list[int], kind: int, earliest: int, column: int, peak: int) -> int:
    """The free slot that an action moves to, or its own column."""
    slot = earliest
    if kind in (_DOWN, _UP):
        slot = column
        while slot > earliest and held[slot - 1] < peak:
            slot -= 1
        earliest = slot
    pair = kind in (_BACK_UP, _BACK_DOWN)
    for slot in range(earliest, column):
        if row[slot] == _FREE and not (pair and row[slot + 1] != _FREE):
            return slot
    return column


def _read(row: list[int], stage: int, stages: int) -> list[Action]:
    names = {_DOWN: ("F", 0), _UP: ("F", 1), _BACK_UP: ("B", 1), _BACK_DOWN: ("B", 0)}
    count = [0] * 6
    actions: list[Action] = []
    for kind in row:
        if kind in names:
            letter, turn = names[kind]
            actions.append((letter, wave_chunk(turn, stage, stages), count[kind]))
            count[kind] += 1
    return actions
