"""Whole training runs: accelerator-hours as published, and as the step time and failures say."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distsim import catalog
from distsim.engine.campaigns.pace import campaign_pace
from distsim.engine.corrections.correction import Publication
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.plans.candidates import checkpoint_of
from distsim.engine.plans.energy import draw
from distsim.engine.plans.goodput import Policy, goodput
from distsim.engine.plans.layouts import best_layouts, with_options
from distsim.engine.runs.cluster import cluster_of
from distsim.engine.runs.kernels import with_kernels_of
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.too_fast import check_possible
from distsim.engine.runs.years import run_year
from distsim.engine.step import step_of, timed
from distsim.engine.steps.report import StepReport
from distsim.errors import DistsimError
from distsim.formulas.energy import energy_kwh
from distsim.formulas.money import gpu_hours
from distsim.interop.runs import MissingCell, Run, read_runs
from distsim.interop.runs.models import model_of
from distsim.specs.job import Job
from distsim.units import HOUR, KWH_PER_MWH

STEPS_ONLY = "steps"
"""``hours_count`` of runs whose published hours are steps times step time; those of others hold all that happened."""
KNOWN = "known"
"""``layout`` of runs that are replayed as they were laid out; for others a plan searches one."""


@dataclass(frozen=True)
class WholeRun:
    """One run: its published hours and the predicted ones, or the reason why there are none."""

    run: Run
    reason: str = ""
    setup: Setup | None = None
    published: float = 0.0
    of_steps: float = 0.0
    """Accelerator-hours of undisturbed steps."""
    with_failures: float = 0.0
    """The same with failures, checkpoints and restarts."""
    accelerator_watts: float | None = None
    """Predicted draw of one accelerator while it trains, without its share of the node."""
    spread: tuple[float, float] = (1.0, 1.0)
    """Ends of the 90% interval of the step time over its middle."""

    @property
    def judged(self) -> float:
        """Predicted hours that count what the published ones count."""
        return self.of_steps if self.run.text("hours_count") == STEPS_ONLY else self.with_failures

    @property
    def error(self) -> float | None:
        """Predicted over published hours, less one; None where hours were not published."""
        return self.judged / self.published - 1 if self.published else None

    @property
    def covered(self) -> bool | None:
        """Whether the published hours lie in the 90% interval of the step time; None where there are none."""
        low, high = self.spread
        return low * self.judged <= self.published <= high * self.judged if self.published else None

    @property
    def accelerator_mwh(self) -> float | None:
        """Predicted energy of the accelerators alone, without nodes and cooling."""
        if self.accelerator_watts is None:
            return None
        return float(energy_kwh(self.judged, self.accelerator_watts, 1.0)) / KWH_PER_MWH

    @property
    def energy_error(self) -> float | None:
        """Predicted over measured energy of the accelerators, less one; None where nobody measured it."""
        measured, predicted = self.run.number("accelerator_mwh"), self.accelerator_mwh
        return None if not measured or predicted is None else predicted / measured - 1


def shipped() -> Path:
    """The whole runs that come with distsim."""
    return catalog.path("runs", "whole")


def whole_runs(path: Path) -> list[WholeRun]:
    """Every run of a file."""
    return [whole_run(run) for run in read_runs(path)]


def median_error(found: Sequence[WholeRun]) -> float:
    """Median of the absolute errors of the runs that could be replayed."""
    return statistics.median(abs(one.error) for one in found if one.error is not None)


def whole_run(run: Run) -> WholeRun:
    """Predict the hours of one run."""
    tokens, published = run.number("tokens"), run.number("gpu_hours") or 0.0
    try:
        if not tokens:
            raise MissingCell("tokens is blank")
        setup = _known(run) if run.text("layout") == KNOWN else _searched(run)
        y = setup.layout
        steps = tokens / (y.micro_batch * y.micro_batches * y.dp * y.seq)
        check_possible(run, setup, published * HOUR / y.gpus / steps or None, ("tokens", "gpu_hours"))
    except MissingCell as missing:
        return WholeRun(run, str(missing))
    except DistsimError as error:
        return WholeRun(run, error.problem)
    now, interval = timed(setup, Publication(run.id, run_year(run)))
    seconds = now * campaign_pace()
    hours = float(gpu_hours(y.gpus, steps * seconds))
    report = step_of(setup)
    power = draw(
        setup.accelerator, setup.cluster, None if report.mfu is None else report.mfu * report.seconds / seconds
    )
    watts = None if power is None else power.accelerator
    spread = (interval.low / now, interval.high / now)
    return WholeRun(run, "", setup, published, hours, hours * stretch(run, report), watts, spread)


def _known(run: Run) -> Setup:
    """The run as it was laid out."""
    more = {
        "zero_group": run.count("zero_group"), "schedule": run.text("schedule"), "dropout": run.flag("dropout"),
        "mtp": run.count("mtp"),
    }  # fmt: skip
    return setup_of(run, more)


def _searched(run: Run) -> Setup:
    """The run in the layout that a plan would choose for it."""
    framework, cluster, gpus = framework_of(run), cluster_of(run), run.need("n_gpus")
    if cluster is None:
        raise MissingCell(f"gpu {run.text('gpu')} has no usual node")
    job = Job.read({
        "model": model_of(run), "framework": framework.name, "gpu": run.text("gpu"), "gpus": gpus,
        "seq": run.need("seq_len"), "global_batch": run.need("global_batch"),
        "attention": "eager" if run.text("attention") == "eager" else "flash",
        "precision": precision_of(run, framework), "dropout": run.flag("dropout"),
    })  # fmt: skip
    stated = {"recompute": "recompute", "zero": "zero_stage", "micro_batch": "micro_batch", "tp": "tp", "pp": "pp"}
    bounds = parse_bounds({name: run.text(cell) for name, cell in stated.items()}, [])
    found = best_layouts(job, cluster, gpus, bounds, 1)
    if not found:
        raise MissingCell("no layout fits")
    return with_kernels_of(run, with_options(job, cluster, found[0].options))


def stretch(run: Run, report: StepReport) -> float:
    """Factor of failures, checkpoints and restarts, with what the row says of them."""
    failures = catalog.load("failures", run.text("failures") or "default")
    storage = catalog.load("storage", run.text("storage") or "default")
    every = run.number("checkpoint_hours")
    policy = Policy(interval_seconds=None if every is None else every * HOUR)
    setup = report.setup
    saved = checkpoint_of(report)
    return goodput(setup.layout.gpus, failures, saved, storage, policy, setup.cluster.gpus_per_node).stretch
