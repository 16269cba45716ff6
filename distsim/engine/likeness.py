"""How alike two jobs are, and what measured runs of the same framework say of the error of a job like them.

Step times of measured runs deviate from the fitted model by amounts that alike runs share. Kriging (a Gaussian process
with an exponential kernel; Rasmussen and Williams 2006, chapter 2) weighs those deviations by likeness; far from every
run it says nothing. A run is never used to correct itself.
"""

from __future__ import annotations

import csv
import functools
import math
from typing import NamedTuple

from distsim import catalog
from distsim.arrays import Number, exp
from distsim.engine.resolve import Setup

# Distance of one: a doubling of each, or as many doublings as stated; chosen by cross-validation (docs/step.md).
DOUBLINGS = {
    "hidden": 2.0, "layers": 5.0, "gpus": 0.67, "tp": 0.5, "pp": 0.36, "cp": 0.67, "ep": 0.25, "micro_batch": 1.7,
    "micro_batches": 6.0, "seq": 1.7, "vpp": 1.5,
}  # fmt: skip
DIFFERENCES = {"gpu": 0.6, "precision": 1.0, "recompute": 6.0, "zero": 3.0, "attention": 0.6,
               "experts": 0.5, "model": 0.1}  # fmt: skip
"""Distance between jobs that differ in these."""
RANGE = 2.0
"""Distance over which likeness falls to 1/e."""
NOISES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0)
"""Variance of repeated runs over that of deviations: calibration takes what predicts a framework's runs best."""
YEARS = 0.25
"""Distance of one in years between releases of the same software."""
ALIKE, SIMILAR = 0.6, 0.25
FOLDER = "evidence"


class Likeness(NamedTuple):
    """What two jobs are compared by: logarithms (and last the year of the software) in units of distance, and names."""

    numbers: tuple[float, ...]
    names: tuple[str, ...]


class Evidence(NamedTuple):
    """One measured run: its likeness, its weight in the correction, and the correction that all others give it."""

    run: str
    likeness: Likeness
    weight: float
    alone: float
    nearest: float
    """Likeness of the most alike other run."""


class Correction(NamedTuple):
    """Deviation (of the logarithm of time) to be expected, likeness of the nearest run, and the nearest runs."""

    logarithm: float
    nearest: float
    runs: tuple[str, ...]

    @property
    def word(self) -> str:
        """How well the job is covered by measured runs."""
        return "alike" if self.nearest >= ALIKE else "similar" if self.nearest >= SIMILAR else "unlike"


def likeness_of(setup: Setup, year: float) -> Likeness:
    """A setup's place among measured runs; ``year`` is that of the software."""
    y, model = setup.layout, setup.model
    values = {"hidden": model.hidden, "layers": model.layers, "gpus": y.gpus, "tp": y.tp, "pp": y.pp, "cp": y.cp,
              "ep": y.ep, "micro_batch": y.micro_batch, "micro_batches": y.micro_batches,
              "seq": y.seq, "vpp": y.vpp}  # fmt: skip
    numbers = tuple(round(math.log2(max(values[name], 1)) / scale, 3) for name, scale in DOUBLINGS.items())
    numbers += (round(year / YEARS, 3),)
    names = (setup.accelerator.name, setup.precision.name, setup.recompute, str(y.zero), y.attention,
             str(model.experts is not None), model.name)  # fmt: skip
    return Likeness(numbers, tuple(name.replace(",", ";").replace('"', "") for name in names))


def distance(one: Likeness, other: Likeness) -> float:
    """Distance between two jobs."""
    squared = 0.0
    for a, b in zip(one.numbers, other.numbers, strict=True):
        squared += (a - b) * (a - b)
    if one.names != other.names:
        for mine, yours, far in zip(one.names, other.names, DIFFERENCES.values(), strict=True):
            if mine != yours:
                squared += far * far
    return math.sqrt(squared)


def alike(apart: Number) -> Number:
    """Likeness of jobs at a distance: the exponential kernel, 1 for the same job."""
    return exp(-apart / RANGE)


def correction_of(setup: Setup, run: str = "", year: float | None = None) -> Correction:
    """What measured runs say of a job; ``run`` names the measured run that the job is, if it is one. Software is that
    of ``year``, or the newest that was measured."""
    all_known = evidence(setup.framework.name)
    newest = max((known.likeness.numbers[-1] * YEARS for known in all_known), default=0.0)
    here = likeness_of(setup, newest if year is None else year)
    total = 0.0
    near: list[tuple[float, str]] = []
    for known in all_known:
        if known.run == run and known.likeness == here:
            return Correction(known.alone, known.nearest, ())
        share = alike(distance(here, known.likeness))
        total += known.weight * share
        near.append((share, known.run))
    near.sort(reverse=True)
    return Correction(total, near[0][0] if near else 0.0, tuple(name for share, name in near[:3] if share >= SIMILAR))


@functools.lru_cache(maxsize=32)
def evidence(framework: str) -> tuple[Evidence, ...]:
    """The measured runs of a framework; none where nobody measured it."""
    file = catalog.path("timing", "fitted").parent / FOLDER / f"{framework}.csv"
    if not file.is_file():
        return ()
    numbers, names = len(DOUBLINGS) + 1, len(DIFFERENCES)
    with open(file, newline="", encoding="utf-8") as table:
        rows = list(csv.reader(table))[1:]
    return tuple(
        Evidence(
            row[0], Likeness(tuple(map(float, row[4 : 4 + numbers])), tuple(row[4 + numbers : 4 + numbers + names])),
            float(row[1]), float(row[2]), float(row[3]),
        )
        for row in rows
    )  # fmt: skip
