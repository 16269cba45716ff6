"""One layer by itself, as some papers time it: what a second layer adds to the passes of a step."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.corrections.documents import has_company
from distsim.engine.corrections.likeness import correction_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.years import run_year
from distsim.engine.steps.breakdown import breakdown_of, scaled, timing_of
from distsim.engine.steps.intervals import interval_of
from distsim.engine.steps.report import Interval
from distsim.engine.steps.work import work_of
from distsim.interop.runs import Run
from distsim.interop.runs.models import layer_alone

OF_PASSES = ("compute", "recompute", "tensor_parallel", "context_parallel", "expert_parallel")
"""Parts of a step that forward and backward take; the rest comes once a step, or between layers' stages."""


def timed_layer(run: Run, setup: Setup) -> tuple[float, Interval]:
    """Seconds of forward and backward of a layer, and their interval: embedding, loss and optimizer are no part of it,
    nor is what a step costs the host."""
    more = setup_of(replace(run, cells={**run.cells, "layers": "2", "vocab": str(setup.model.vocab)}))
    correction = correction_of(setup, run.id, run_year(run), run.source).within(has_company(run))
    one, two = (scaled(breakdown_of(work_of(s), timing_of(s), correction.state), correction) for s in (setup, more))
    seconds = sum(two[part] - one[part] for part in OF_PASSES)
    return seconds, interval_of(work_of(setup), seconds, correction)


def assumed_layer(run: Run) -> str:
    """What is taken for granted of a row without a vocabulary."""
    return "vocab is blank: a single layer, timed as what a second layer adds" if layer_alone(run) else ""
