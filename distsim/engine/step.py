"""``distsim.step``: the time of one optimizer step, where it goes, and how sure that is."""

from __future__ import annotations

from typing import Any

from distsim import catalog
from distsim.engine.corrections.correction import UNPUBLISHED, Publication, correction_of, nearest_of
from distsim.engine.exchanges.reach import refuse_beyond, refuse_unjoined
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import memory_of
from distsim.engine.steps.breakdown import breakdown_of, scaled, timing_of
from distsim.engine.steps.report import Interval, StepReport
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
    work = work_of(setup)
    timing = timing_of(setup)
    correction = correction_of(setup)
    breakdown = scaled(breakdown_of(work, timing, correction.state), correction)
    interval = interval_of(work, sum(breakdown.values()), correction)
    near = nearest_of(setup, correction)
    return StepReport(setup, work, timing, near, breakdown, interval, memory_of(setup))


@catalog.settled()
def timed(setup: Setup, published: Publication = UNPUBLISHED) -> tuple[float, Interval]:
    """Step time and interval alone, of a job or of the measured run that is replayed."""
    from distsim.engine.steps.intervals import interval_of

    refuse_unjoined(setup, setup.layout.gpus)
    correction = correction_of(setup, published)
    work = work_of(setup)
    seconds = sum(scaled(breakdown_of(work, timing_of(setup), correction.state), correction).values())
    return seconds, interval_of(work, seconds, correction)


@catalog.settled()
def seconds_of(setup: Setup) -> float:
    """The step time alone."""
    refuse_unjoined(setup, setup.layout.gpus)
    correction = correction_of(setup)
    return sum(scaled(breakdown_of(work_of(setup), timing_of(setup), correction.state), correction).values())
