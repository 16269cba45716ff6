"""One step in the trace-event format that Perfetto opens: a process per stage, a thread per stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.engine.steps.moved import Moved
from distsim.engine.steps.passes import STREAMS, Segment
from distsim.engine.steps.timeline import StepTimeline
from distsim.errors import DistsimError
from distsim.report import trace

MOST_EVENTS = 1_000_000


def events(step: StepTimeline, window: tuple[float, float]) -> dict[str, Any]:
    """The trace as a JSON object: what every stage's streams do between two times."""
    setup = step.report.setup
    found: list[dict[str, Any]] = []
    exchanges: list[dict[str, Any]] = []
    ranks = setup.layout.gpus // step.run.stages
    for stage in range(step.run.stages):
        told = f"stage {stage}, one of {ranks} ranks" if ranks > 1 else f"stage {stage}"
        found.append(trace.named("process_name", told, stage))
        moved = Moved(step, stage)
        slices = list(_slices(step, stage, window, MOST_EVENTS - len(found), moved))
        present = {one["tid"] for one in slices}
        found += [trace.named("thread_name", name, stage, at) for at, name in enumerate(STREAMS) if at in present]
        found += slices
        exchanges += [{"stage": stage, **one} for one in moved.told()]
    summary = {
        "model": setup.model.name, "schedule": step.run.schedule, "step_seconds": step.seconds,
        "breakdown_seconds": step.report.breakdown, "pipeline_slack_seconds": step.slack, "exchanges": exchanges,
    }  # fmt: skip
    return {"traceEvents": found, "displayTimeUnit": "ms", "otherData": summary}


def _slices(
    step: StepTimeline, stage: int, window: tuple[float, float], most: int, moved: Moved
) -> Iterator[dict[str, Any]]:
    for count, segment in enumerate(step.segments(stage, *window)):
        if count >= most:
            raise DistsimError(
                f"the trace would have more than {MOST_EVENTS:,} events", "choose a part of the step: --from 0 --to 1s"
            )
        tid, told = STREAMS.index(segment.stream), _arguments(segment, moved)
        yield trace.complete(segment.name, segment.kind, stage, tid, segment.start, segment.end, told)


def _arguments(segment: Segment, moved: Moved) -> dict[str, Any]:
    told: dict[str, Any] = {} if segment.micro is None else {"micro_batch": segment.micro}
    if segment.stream != "compute":
        told["exposed"] = segment.exposed
    return told | moved.within(segment) if segment.flows else told
