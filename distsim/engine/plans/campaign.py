"""Monte-Carlo of a training campaign: failures strike, checkpoints save, and a finish date comes out; seeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from distsim.engine.plans.goodput import Goodput
from distsim.errors import DistsimError

CAMPAIGNS = 10_000  # the outer tenths are then known to 2% of the standard deviation
MOST_FAILURES = 200_000_000  # over all campaigns: some seconds of work
DRAWS_AT_ONCE = 1_000_000  # draws at a time
Floats = NDArray[numpy.float64]


@dataclass(frozen=True)
class Campaigns:
    """Wall seconds and failures of each simulated campaign."""

    seconds: Floats
    failures: NDArray[numpy.int64]

    @property
    def mean(self) -> float:
        """Mean wall seconds."""
        return float(self.seconds.mean())

    def quantile(self, share: float) -> float:
        """Wall seconds that a share of the campaigns does not exceed."""
        return float(numpy.quantile(self.seconds, share))

    def share_within(self, seconds: float) -> float:
        """Share of the campaigns that are done in so long."""
        return float((self.seconds <= seconds).mean())

    def to_dict(self) -> dict[str, Any]:
        """Mean and quantiles in seconds."""
        return {
            "campaigns": len(self.seconds), "mean_seconds": self.mean, "p10_seconds": self.quantile(0.1),
            "p50_seconds": self.quantile(0.5), "p90_seconds": self.quantile(0.9),
            "mean_failures": float(self.failures.mean()),
        }  # fmt: skip


def simulate(
    terms: Goodput,
    work_seconds: float,
    campaigns: int = CAMPAIGNS,
    seed: int = 0,
    work_spread: tuple[float, float] = (0.0, 0.0),
) -> Campaigns:
    """Campaigns of so much undisturbed training, under the terms of the closed form but event by event.

    ``work_spread`` holds the standard deviations of the logarithm of the step time, which is known only so well, below
    and above what is predicted: its median.
    """
    if not work_seconds > 0:
        raise DistsimError(f"{work_seconds:g} s of training cannot be simulated", "give more than 0")
    if not 1 <= campaigns <= 1_000_000:
        raise DistsimError(f"{campaigns} campaigns cannot be simulated", "valid: 1 to 1,000,000")
    expected = terms.interruptions(work_seconds)
    if expected * campaigns > MOST_FAILURES:
        raise DistsimError(
            f"each of {campaigns:,} campaigns would fail {expected:,.0f} times: too much to simulate",
            f"simulate at most {max(int(MOST_FAILURES / expected), 1):,}, or use the closed form",
        )
    rng = numpy.random.default_rng(seed)
    work = numpy.full(campaigns, work_seconds * terms.slow_steps, dtype=numpy.float64)
    if any(work_spread):
        draws = rng.standard_normal(campaigns)
        work *= numpy.exp(draws * numpy.where(draws < 0, *work_spread))
    seconds, failures = _finish(terms, work, rng)
    seconds += rng.gamma(rng.binomial(failures, terms.waits), terms.wait)  # a sum of exponential waits for repairs
    return Campaigns(seconds * terms.planned_stretch, failures)


def _finish(terms: Goodput, work: Floats, rng: numpy.random.Generator) -> tuple[Floats, NDArray[numpy.int64]]:
    """Wall seconds and failures of each campaign; one column is one run from a start or restart to a failure."""
    left, seconds = work.copy(), numpy.zeros_like(work)
    failures = numpy.zeros(len(work), dtype=numpy.int64)
    going = numpy.arange(len(work))
    first = True
    while len(going):
        expected = float(terms.failure_stretch * left[going].max() / terms.mean_time_between_failures)
        runs = int(min(max(expected / 4, 1), max(DRAWS_AT_ONCE // len(going), 1)))
        lives = rng.exponential(terms.mean_time_between_failures, (len(going), runs))
        done, took, failed = _runs(terms, left[going], lives, restarted_first=not first)
        left[going] -= done
        seconds[going] += took
        failures[going] += failed
        going = going[left[going] > 0]
        first = False
    return seconds, failures


def _runs(
    terms: Goodput, left: Floats, lives: Floats, restarted_first: bool
) -> tuple[Floats, Floats, NDArray[numpy.int64]]:
    """What each campaign gets done, takes and suffers in a row of runs, up to its end if it lies in there."""
    up = lives - terms.restart
    if not restarted_first:
        up[:, 0] = lives[:, 0]
    segment = terms.interval + terms.blocking
    saved = numpy.floor(numpy.maximum(up - terms.drain, 0) / segment) * terms.interval
    before = numpy.cumsum(saved, axis=1) - saved
    todo = left[:, None] - before  # at the start of each run
    needed = todo + numpy.ceil(numpy.maximum(todo, 0) / terms.interval) * terms.blocking
    ends = up >= needed
    finished = ends.any(axis=1)
    last = numpy.where(finished, ends.argmax(axis=1), lives.shape[1])
    whole = numpy.arange(lives.shape[1]) < last[:, None]  # runs that ended in a failure
    took = (lives * whole).sum(axis=1)
    rows = numpy.flatnonzero(finished)
    at = last[rows]
    took[rows] += needed[rows, at] + (lives - up)[rows, at]
    done = numpy.where(finished, left, (saved * whole).sum(axis=1))
    return done, took, whole.sum(axis=1)
