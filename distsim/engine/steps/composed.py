"""A step's time with what it was computed from, before anything is said of how sure it is."""

from __future__ import annotations

from dataclasses import dataclass

from distsim.engine.corrections.correction import Correction
from distsim.engine.jobs.resolve import Setup
from distsim.engine.steps.breakdown import breakdown_of, scaled
from distsim.engine.steps.work import Work
from distsim.specs.timing import Timing


@dataclass(frozen=True, repr=False, eq=False)
class ComposedStep:
    """One optimizer step of a setup: its work, the numbers that hold for it, and where its time goes."""

    setup: Setup
    work: Work
    timing: Timing
    correction: Correction
    breakdown: dict[str, float]

    @property
    def seconds(self) -> float:
        """Time of one optimizer step."""
        return sum(self.breakdown.values())


def composed(work: Work, timing: Timing, correction: Correction) -> ComposedStep:
    """The time of some work at fitted numbers, as similar runs correct it, by the closed form of its pipeline."""
    breakdown = scaled(breakdown_of(work, timing, correction.state), correction)
    return ComposedStep(work.setup, work, timing, correction, breakdown)
