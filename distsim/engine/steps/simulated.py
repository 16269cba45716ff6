"""A step whose pipeline is run by the event simulation, where the composition's closed form only stands for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.engine.jobs.stages import alike_chunks
from distsim.engine.timelines.schedule_shape import weight_versions
from distsim.schedules.registry import SCHEDULES
from distsim.units import duration

if TYPE_CHECKING:
    from distsim.engine.step import StepReport

MOST_ACTIONS = 50_000
"""Passes of a pipeline that are simulated within some tens of milliseconds."""
WORTH_TELLING = 0.02
"""How far a simulated step is from a composed one before that is told: what alike runs differ by."""


def simulated_seconds(report: StepReport) -> float | None:
    """The step with its pipeline run by the event simulation, each stage in its own time; None without a pipeline, or
    where it has too many passes."""
    from distsim.engine.steps.timeline import timeline_of

    y = report.setup.layout
    if y.pp == 1 or 2 * y.pp * y.micro_batches * max(y.vpp, 1) > MOST_ACTIONS:
        return None
    return report.seconds - timeline_of(report).slack


def in_doubt(report: StepReport) -> bool:
    """Whether the composition's bubble may be of another pipeline: of alike stages under split backwards and in a V,
    of alike chunks in turn."""
    y, kind = report.setup.layout, SCHEDULES.get(report.setup.layout.schedule)
    if y.pp == 1 or kind is None:
        return False
    return kind.splits or kind.placement == "wave" or (y.vpp > 1 and not alike_chunks(report.setup))


def asynchronous_note(report: StepReport) -> str:
    """What a bubble means under schedules that do not empty their pipeline before weights are updated."""
    y, bubble = report.setup.layout, report.breakdown["pipeline_bubble"]
    if not bubble or max(weight_versions(y.schedule, y.pp, y.micro_batches, stage) for stage in range(y.pp)) == 1:
        return ""
    return (
        f"{y.schedule} goes on with the next step's micro-batches while the last leave the pipeline: its bubble "
        f"of {duration(bubble)} is that of the first step alone, later ones take {duration(report.seconds - bubble)}"
    )


def simulated_note(report: StepReport) -> str:
    """What the event simulation makes of a pipeline whose closed form is in doubt, where that is another time."""
    seconds = simulated_seconds(report) if in_doubt(report) else None
    off = 0.0 if seconds is None else seconds / report.seconds - 1
    if seconds is None or abs(off) < WORTH_TELLING:
        return ""
    name = report.setup.layout.schedule
    return (
        f"by the event simulation of {name} with these stages the step takes {duration(seconds)} ({off:+.0%}): its "
        f"bubble is counted for stages and chunks that are alike; --schedule 1f1b has no such doubt"
    )
