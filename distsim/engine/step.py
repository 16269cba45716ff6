"""``distsim.step``: the time of one optimizer step, where it goes, and how sure that is."""

from __future__ import annotations

from typing import Any

from distsim import catalog
from distsim.engine.corrections.correction import UNPUBLISHED, Correction, Publication, correction_of
from distsim.engine.exchanges.reach import refuse_beyond, refuse_unjoined
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import memory_of
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.composed import ComposedStep, composed
from distsim.engine.steps.report import Interval, StepReport
from distsim.engine.steps.simulated import as_simulated
from distsim.engine.steps.work import work_of
from distsim.specs.job import Job
from distsim.specs.named import Named, job_of


@catalog.settled()
def step(job: Job | Named | None = None, /, **options: Any) -> StepReport:
    """How long one optimizer step of a job takes, given as a Job, or as its fields, the model first: ``seconds``, parts
    of it in ``breakdown``, an ``interval`` that holds 90% of runs, memory in bytes. Raises DistsimError for what does
    not exist or does not fit together."""
    return step_of(resolve(job_of(job, options)))


@catalog.settled()
def step_of(setup: Setup) -> StepReport:
    """How long one optimizer step of a resolved setup takes."""
    from distsim.engine.steps.intervals import interval_of

    refuse_beyond(setup, setup.layout.gpus)
    made = predicted(setup, correction_of(setup))
    interval = interval_of(made.work, made.seconds, made.correction)
    return StepReport(setup, made.work, made.timing, made.correction, made.breakdown, interval, memory_of(setup))


def predicted(setup: Setup, correction: Correction) -> ComposedStep:
    """The time of one optimizer step at the numbers that hold for a setup, as similar runs correct it."""
    return as_simulated(composed(work_of(setup), timing_of(setup), correction))


@catalog.settled()
def timed(setup: Setup, published: Publication = UNPUBLISHED) -> tuple[float, Interval]:
    """Step time and interval alone, of a job or of the measured run that is replayed."""
    from distsim.engine.steps.intervals import interval_of

    refuse_unjoined(setup, setup.layout.gpus)
    made = predicted(setup, correction_of(setup, published))
    return made.seconds, interval_of(made.work, made.seconds, made.correction)


@catalog.settled()
def seconds_of(setup: Setup) -> float:
    """The step time alone."""
    refuse_unjoined(setup, setup.layout.gpus)
    return predicted(setup, correction_of(setup)).seconds
