"""All schedules for the same stages, micro-batches and times, best first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsim.engine.pipeline import pipeline
from distsim.engine.timelines.simulation import Pipeline
from distsim.errors import DistsimError
from distsim.schedules.registry import SCHEDULES

TimesOf = Callable[[str, int | None], dict[str, Any]]
"""Times of a model's passes under a schedule with so many chunks per stage, or its usual number."""


def compare(
    stages: int | None, micro: int | None, chunks: int | None = None, times_of: TimesOf | None = None, **given: Any
) -> tuple[list[Pipeline], list[tuple[str, str]]]:
    """Every schedule that can run, by makespan and then by memory; and the others with the reason. ``chunks`` applies
    to the schedules that take that many, the rest keep their usual number. ``times_of`` a model replace those given."""
    reports: list[Pipeline] = []
    refused: list[tuple[str, str]] = []
    pipeline(stages, micro, "gpipe", **given)  # what is wrong for every schedule is said once
    for name, kind in SCHEDULES.items():
        if kind.function == "megatron_order":
            continue  # the same order as interleaved-1f1b wherever both run
        takes = chunks is not None and chunks >= kind.least and (kind.most is None or chunks <= kind.most)
        each = chunks if takes else None
        try:
            times = {} if times_of is None else times_of(name, each)
            reports.append(pipeline(stages, micro, name, each, **{**given, **times}))
        except DistsimError as error:
            refused.append((name, error.hints[0] if error.hints else error.problem))
    reports.sort(key=lambda one: (round(one.makespan, 9), max(one.peak_in_flight), one.chunks))
    return reports, refused
