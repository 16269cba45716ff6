"""A step whose pipeline is run by the event simulation, where the composition's closed form only approximates it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from distsim import catalog
from distsim.engine.steps.work import kinds_of
from distsim.engine.timelines.ramps import EVEN
from distsim.engine.timelines.schedule_shape import ALL_FORWARDS_FIRST, weight_versions
from distsim.formulas.bubbles import least_makespan
from distsim.units import duration

if TYPE_CHECKING:
    from distsim.engine.steps.composed import ComposedStep

MOST_ACTIONS = 50_000
"""Passes of a pipeline that are simulated within some tens of milliseconds."""
ALWAYS_EXACT = ("naive", "gpipe")
"""Schedules whose closed form holds for stages of any lengths."""
WORTH_TELLING = 0.02
"""How far a simulated step is from a composed one before that is reported: what repeated runs differ by."""
LEARNED = ("1f1b", "interleaved-1f1b", "interleaved-1f1b-overlap")
"""Schedules of nearly all measured runs. Corrections by similar runs were learned of their closed form and hold what it
is off by, so that a simulated bubble would count that twice (docs/findings/layouts-and-settings.md)."""


@catalog.settled()
def simulated_seconds(report: ComposedStep) -> float | None:
    """The step with its pipeline run by the event simulation, each stage in its own time; None without a pipeline, or
    where it has too many passes."""
    from distsim.engine.steps.timeline import timeline_of

    layout = report.setup.layout
    if layout.pp == 1 or 2 * layout.pp * layout.micro_batches * max(layout.vpp, 1) > MOST_ACTIONS:
        return None
    return report.seconds - timeline_of(report).slack


def as_simulated(step: ComposedStep) -> ComposedStep:
    """The step with the bubble that the event simulation gives, where the closed form's is in doubt and no measured
    runs tell by how much."""
    if step.setup.layout.schedule in LEARNED or not in_doubt(step):
        return step
    seconds = simulated_seconds(step)
    if seconds is None:
        return step
    bubble = max(step.breakdown["pipeline_bubble"] + seconds - step.seconds, 0.0)
    return replace(step, breakdown={**step.breakdown, "pipeline_bubble": bubble})


def in_doubt(report: ComposedStep) -> bool:
    """Whether the closed form's bubble may be inexact for these stages, so that the step is simulated: uneven stages
    under split backwards, V shapes and two directions; chunks, of which one has the output layer; under 1F1B a slowest
    stage that is not the last."""
    layout = report.setup.layout
    if layout.pp == 1 or layout.schedule in ALWAYS_EXACT or layout.vocab_parallel:
        return False
    if layout.schedule not in EVEN or layout.vpp > 1:
        return True
    each = _micro_batches(report)
    if layout.schedule in ALL_FORWARDS_FIRST:  # exact for a last stage that is slower than the others
        return min(each[-1], *each[:-1]) < (1 - WORTH_TELLING) * max(each[:-1])
    scale = math.exp(report.correction.logarithm)
    composed = sum(each) + (layout.micro_batches - 1) * max(each)
    least = max(least_makespan(sum(each[:stage]), one, layout.micro_batches) for stage, one in enumerate(each))
    return bool((composed - least) * scale > WORTH_TELLING * report.seconds)


def _micro_batches(report: ComposedStep) -> list[float]:
    """Seconds of one micro-batch on each stage."""
    from distsim.engine.steps.compose import layout_numbers, micro_batch, stage_numbers

    layout, timing = layout_numbers(report.setup, report.correction.state), report.timing.model_dump()
    found: dict[int, float] = {}
    for alike, numbers in zip(kinds_of(report.setup), stage_numbers(report.work), strict=True):
        found |= dict.fromkeys((stage.index for stage in alike), float(micro_batch(numbers, layout, timing).seconds))
    return [found[stage] for stage in sorted(found)]


def asynchronous_note(report: ComposedStep) -> str:
    """What a bubble means under schedules that do not empty their pipeline before weights are updated."""
    layout, bubble = report.setup.layout, report.breakdown["pipeline_bubble"]
    if (
        not bubble
        or max(weight_versions(layout.schedule, layout.pp, layout.micro_batches, stage) for stage in range(layout.pp))
        == 1
    ):
        return ""
    return (
        f"{layout.schedule} starts the next step's micro-batches while the last ones leave the pipeline: its bubble of "
        f"{duration(bubble)} is in the first step only; later steps take {duration(report.seconds - bubble)}"
    )


def simulated_note(report: ComposedStep) -> str:
    """A note with the event simulation's step time where the closed form is in doubt and the two differ."""
    seconds = simulated_seconds(report) if in_doubt(report) else None
    off = 0.0 if seconds is None else seconds / report.seconds - 1
    if seconds is None or abs(off) < WORTH_TELLING:
        return ""
    layout = report.setup.layout
    bounded = layout.vpp == 1 and layout.schedule in EVEN
    why = "is an upper bound where the last stage is not the slowest" if bounded else "assumes equal stages and chunks"
    return (
        f"event simulation of {layout.schedule} with these stages gives {duration(seconds)} per step ({off:+.0%}): "
        f"the predicted bubble {why}"
    )
