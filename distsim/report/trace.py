"""A schedule in the trace-event format that Chrome's about:tracing and Perfetto open.

One process, one thread per stage; complete events (``X``) for actions and flow arrows (``s`` to ``f``) for what crosses
stages. Times of the format are microseconds.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from distsim.engine.timelines.simulation import Pipeline
from distsim.report import gantt
from distsim.units import MICROSECOND

_NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient", "FB": "forward + backward",
          "O": "optimizer"}  # fmt: skip


def events(report: Pipeline, flows: bool = True) -> dict[str, Any]:
    """The trace as a JSON object; ``flows`` adds an arrow for every transfer between stages."""
    found = [named("process_name", f"distsim {report.schedule}", 0)]
    for stage in range(report.stages):
        found.append(named("thread_name", f"stage {stage}", 0, stage))
        found += [_action(stage, action, start, end) for action, start, end in gantt.events(report, stage)]
    if flows:
        found += _flows(report)
    summary = {
        "schedule": report.schedule,
        "makespan_seconds": report.makespan,
        "bubble_fraction": report.bubble_fraction,
    }
    return {"traceEvents": found, "displayTimeUnit": "ms", "otherData": summary}


def named(what: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    """Gives a process or a thread its name."""
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def complete(
    name: str, category: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    """Something that lasts from ``start`` to ``end`` (seconds)."""
    return {
        "name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid,
        "ts": start / MICROSECOND, "dur": (end - start) / MICROSECOND, "args": args,
    }  # fmt: skip


def _action(stage: int, action: Any, start: float, end: float) -> dict[str, Any]:
    kind = action[0]
    args: dict[str, Any] = {"chunk": action[1], "micro": action[2]}
    if kind == "FB":
        args |= {"backward_chunk": action[3], "backward_micro": action[4]}
    name = _NAMES[kind] if kind == "O" else f"{kind}{gantt.label(action)}"
    return complete(name, _NAMES[kind], 0, stage, start, end, args)


def _flows(report: Pipeline) -> list[dict[str, Any]]:
    """An arrow from the action that makes a tensor to the one on another stage that waits for it."""
    made: dict[tuple[str, int, int], tuple[int, float, float]] = {}
    for stage in range(report.stages):
        for action, start, end in gantt.events(report, stage):
            for half, chunk, i in _halves(action):
                made[half, chunk, i] = (stage, start, end)
    found: list[dict[str, Any]] = []
    for chain in report.parts.chains:
        for before, after in pairwise(chain):
            for half, source, target in (("F", before, after), ("B", after, before)):
                for i in range(report.micro):
                    if (half, source, i) in made and (half, target, i) in made:
                        found += _arrow(len(found), half, made[half, source, i], made[half, target, i])
    return found


def _halves(action: Any) -> list[tuple[str, int, int]]:
    if action[0] == "FB":
        return [("F", action[1], action[2]), ("B", action[3], action[4])]
    return [("F" if action[0] == "F" else "B", action[1], action[2])] if action[0] in "FBI" else []


def _arrow(
    number: int, half: str, source: tuple[int, float, float], target: tuple[int, float, float]
) -> list[dict[str, Any]]:
    if source[0] == target[0]:
        return []
    name = "activation" if half == "F" else "gradient"
    shared = {"name": name, "cat": name, "id": number, "pid": 0}
    inside = (source[1] + source[2]) / 2  # an arrow binds to the action whose time holds its own
    return [
        {**shared, "ph": "s", "tid": source[0], "ts": inside / MICROSECOND},
        {**shared, "ph": "f", "bp": "e", "tid": target[0], "ts": (target[1] + target[2]) / 2 / MICROSECOND},
    ]
