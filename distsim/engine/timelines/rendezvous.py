"""Replays a program: actions together with the sends and receives as the original code posts them.

``x{s1f,r0b}`` posts a batch (send to stage 1, receive from stage 0; the letter after the stage tells message streams
apart) and waits for all of it; ``p3{...}`` only posts batch 3, and ``w3`` waits for it. A message starts when both ends
have posted it and takes one hop; messages of a stream arrive in the order posted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from distsim.engine.timelines.timeline import Timeline
from distsim.engine.timelines.wiring import Costs, Transfers
from distsim.errors import DistsimError
from distsim.schedules.action import Action, Schedule

_STEP = re.compile(r"(?:(x)|p(\d+))\{([^}]*)\}|w(\d+)|(\([^)]*\)|[^\s,;{}]+)")
_MESSAGE = re.compile(r"([sr])(\d+)([a-z])$")

Stream = tuple[int, int, str]  # sender, receiver, letter


class Step(NamedTuple):
    """Compute the next action, post a batch, or wait for one."""

    post: tuple[tuple[bool, int, str], ...] | None = None  # (is a send, other stage, letter)
    batch: int = -1
    wait: bool = False


def is_program(lines: Sequence[str]) -> bool:
    """Whether an order says when messages are posted."""
    return any("{" in line for line in lines)


def split(lines: Sequence[str]) -> tuple[list[str], list[list[Step]]]:
    """The order without its messages, and the steps of every stage."""
    rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    plain, programs = [], []
    for stage, line in enumerate(rows):
        actions, steps = [], []
        for found in _STEP.finditer(line):
            blocking, number, messages, waited, action = found.groups()
            if action is not None:
                actions.append(action)
                steps.append(Step())
            elif waited is not None:
                steps.append(Step(batch=int(waited), wait=True))
            else:
                batch = -1 if blocking else int(number)
                steps.append(Step(_messages(messages, stage, len(rows)), batch, bool(blocking)))
        plain.append(" ".join(actions))
        programs.append(steps)
    return plain, programs


def _messages(text: str, stage: int, stages: int) -> tuple[tuple[bool, int, str], ...]:
    found = []
    for part in text.split(","):
        match = _MESSAGE.match(part.strip())
        if not match or int(match[2]) >= stages:
            raise DistsimError(
                f"stage {stage}: {part.strip()!r} is not a message between {stages} stages",
                "write s (send) or r (receive), the other stage, and f or b, e.g. s1f",
            )
        found.append((match[1] == "s", int(match[2]), match[3]))
    return tuple(found)


class _Replay:
    """The state of all stages while a program runs."""

    def __init__(self, schedule: Schedule, programs: list[list[Step]], costs: Costs, transfers: Transfers) -> None:
        self.schedule, self.programs, self.costs, self.transfers = schedule, programs, costs, transfers
        stages = len(programs)
        self.at = [0] * stages
        self.now = [0.0] * stages
        self.ends = [0.0] * stages
        self.starts: list[list[float]] = [[] for _ in range(stages)]
        self.posted: dict[tuple[bool, Stream], list[float]] = {}
        self.batches: list[dict[int, list[tuple[Stream, int]]]] = [{} for _ in range(stages)]

    def run(self) -> None:
        moved = True
        while moved:
            moved = False
            for stage in range(len(self.programs)):
                while self.at[stage] < len(self.programs[stage]) and self._step(stage):
                    moved = True
        stuck = [s for s, steps in enumerate(self.programs) if self.at[s] < len(steps)]
        if stuck:
            lines = [f"stage {s} {self._blocked(s)}" for s in stuck]
            raise DistsimError("the program deadlocks: a batch waits for a message that is never posted", *lines)

    def _step(self, stage: int) -> bool:
        step = self.programs[stage][self.at[stage]]
        if step.post is None and not step.wait:
            self._compute(stage)
        elif step.post is not None and not (step.wait and -1 in self.batches[stage]):
            self._post(stage, step)
        if step.wait:
            done = self._done(stage, step.batch)
            if done is None:
                return False
            self.now[stage] = max(self.now[stage], done)
            self.batches[stage].pop(step.batch, None)
        self.at[stage] += 1
        return True

    def _compute(self, stage: int) -> None:
        action: Action = self.schedule.orders[stage][len(self.starts[stage])]
        self.starts[stage].append(self.now[stage])
        self.now[stage] += self.costs.duration(action)
        self.ends[stage] = self.now[stage]

    def _post(self, stage: int, step: Step) -> None:
        batch = []
        for sends, other, letter in step.post or ():
            stream = (stage, other, letter) if sends else (other, stage, letter)
            times = self.posted.setdefault((sends, stream), [])
            times.append(self.now[stage])
            batch.append((stream, len(times) - 1))
        self.batches[stage][step.batch] = batch

    def _done(self, stage: int, batch: int) -> float | None:
        """When the batch has arrived; None while a partner has not posted."""
        latest = 0.0
        for stream, index in self.batches[stage].get(batch, []):
            sent, received = (self.posted.get((side, stream), []) for side in (True, False))
            if index >= min(len(sent), len(received)):
                return None
            delay = self.transfers.delay(stream[0], stream[1], len(self.programs))
            latest = max(latest, max(sent[index], received[index]) + delay)
        return latest

    def _blocked(self, stage: int) -> str:
        step = self.programs[stage][self.at[stage]]
        parts = []
        for (sender, receiver, letter), index in self.batches[stage].get(step.batch, []):
            stream = (sender, receiver, letter)
            if index >= len(self.posted.get((sender != stage, stream), [])):
                verb, other = ("send to", receiver) if sender == stage else ("receive from", sender)
                parts.append(f"its {verb} stage {other}")
        return f"waits before action {len(self.starts[stage])} for {' and '.join(parts) or 'a batch'}"


def replay(schedule: Schedule, programs: list[list[Step]], costs: Costs, transfers: Transfers) -> Timeline:
    """Times of a program's actions."""
    state = _Replay(schedule, programs, costs, transfers)
    state.run()
    busy = [sum(map(costs.duration, order)) for order in schedule.orders]
    return Timeline(state.starts, busy, [line[0] if line else 0.0 for line in state.starts], state.ends)
