"""Seconds of each part of a step at the fitted numbers that hold for a framework on an accelerator."""

from __future__ import annotations

import math

from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.calibrated import FITTED, KIND, calibrated, kept_while_fitted
from distsim.engine.corrections.correction import Correction
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.steps.compose import PARTS, compose, layout_numbers, stage_numbers
from distsim.engine.steps.work import Work
from distsim.specs.timing import PLAIN, Kin, Timing, combined

EXPOSED = "exposed_fraction"
"""The number that says how much of an exchange nothing hides (specs/timing.py)."""


@kept_while_fitted(256)
def timing_on(kin: Kin, architecture: str) -> Timing:
    """The fitted numbers of ``presets/timing`` that hold for a framework on an architecture."""
    own = (f"framework.{kin.name}", f"framework.{kin.like}")
    mine = ("general", f"architecture.{architecture}", f"family.{kin.family}", *own)

    def wanted(table: str) -> bool:
        return table in mine or table.startswith(tuple(f"{name}." for name in own))

    return combined(calibrated(FITTED, wanted, "general"), kin, architecture, str(catalog.path(KIND, FITTED)))


def timing_of(setup: Setup) -> Timing:
    """The numbers that hold for a setup's framework on its accelerator: nothing hides where all share one queue."""
    timing = timing_on(kin_of(setup.framework, setup.compiled), setup.accelerator.generation)
    return timing.model_copy(update={EXPOSED: 1.0}) if one_queue(setup) else timing


def one_queue(setup: Setup) -> bool:
    """Whether no exchange of a setup's runs beside what computes, on chips whose kernels share one queue."""
    return traits_of(setup.accelerator).one_queue


def breakdown_of(work: Work, timing: Timing, state: int = PLAIN) -> dict[str, float]:
    """Seconds of each part of a step in a state of the framework's software; they add up to its time."""
    parts = compose(stage_numbers(work), layout_numbers(work.setup, state), timing.model_dump())
    return {name: float(parts[name]) for name in PARTS}


def scaled(breakdown: dict[str, float], correction: Correction) -> dict[str, float]:
    """All parts times the same factor, by which similar measured runs deviate from the prediction."""
    factor = math.exp(correction.logarithm)
    return {name: seconds * factor for name, seconds in breakdown.items()}
