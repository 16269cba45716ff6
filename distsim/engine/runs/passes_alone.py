"""Less than a step, as some time it: forward and backward without an update, or of one layer by itself, which is what
a second layer adds to the passes of a step."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.corrections.correction import Publication, correction_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.breakdown import breakdown_of, scaled, timing_of
from distsim.engine.steps.intervals import interval_of
from distsim.engine.steps.report import Interval
from distsim.engine.steps.work import work_of
from distsim.interop.runs import Run
from distsim.interop.runs.models import layer_alone
from distsim.interop.runs.training import without_update

OF_PASSES = ("compute", "recompute", "tensor_parallel", "context_parallel", "expert_parallel")
"""Parts of a step that forward and backward take; the rest comes once a step, or between layers' stages."""


OF_UPDATES = ("optimizer", "other")
"""Parts of a step that are there for its update: the optimizer, and what the host does once a step."""


def timed_layer(run: Run, setup: Setup, published: Publication) -> tuple[float, Interval]:
    """Seconds of forward and backward of a layer, and their interval: embedding, loss and optimizer are no part of it,
    nor is what a step costs the host."""
    more = setup_of(replace(run, cells={**run.cells, "layers": "2", "vocab": str(setup.model.vocab)}))
    correction = correction_of(setup, published)
    one, two = (scaled(breakdown_of(work_of(s), timing_of(s), correction.state), correction) for s in (setup, more))
    seconds = sum(two[part] - one[part] for part in OF_PASSES)
    return seconds, interval_of(work_of(setup), seconds, correction)


def timed_passes(setup: Setup, published: Publication) -> tuple[float, Interval]:
    """Seconds of forward and backward of a run that never updates its weights, and their interval: no optimizer, nor
    what a step costs the host."""
    correction = correction_of(setup, published)
    work = work_of(setup)
    parts = scaled(breakdown_of(work, timing_of(setup), correction.state), correction)
    seconds = sum(value for part, value in parts.items() if part not in OF_UPDATES)
    return seconds, interval_of(work, seconds, correction)


def assumed_part(run: Run) -> str:
    """What is taken for granted of a row of less than a step."""
    if layer_alone(run):
        return "vocab is blank: a single layer, timed as what a second layer adds"
    return "no update in it: forward and backward alone" if without_update(run) else ""
