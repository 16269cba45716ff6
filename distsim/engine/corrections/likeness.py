"""How similar two jobs are: by what they are compared, and how far apart that is."""

import math
from typing import NamedTuple, Self

from distsim.arrays import Number, exp, maximum, minimum
from distsim.engine.corrections.own_runs import compared
from distsim.engine.corrections.stalls import place_of
from distsim.engine.jobs.resolve import Setup

# Distance of one: a doubling of each, or as many doublings as stated; chosen by cross-validation (docs/step.md).
DOUBLINGS = {
    "hidden": 2.0, "layers": 5.0, "gpus": 0.67, "tp": 0.5, "pp": 0.36, "cp": 0.67, "ep": 0.25, "micro_batch": 1.7,
    "micro_batches": 6.0, "seq": 1.7, "vpp": 1.5,
}  # fmt: skip
DIFFERENCES = {"gpu": 0.6, "precision": 1.0, "recompute": 6.0, "zero": 3.0, "attention": 0.6,
               "experts": 0.5, "model": 0.1, "source": 15.0}  # fmt: skip
"""Distance between jobs that differ in these. Runs of one publication share cluster and software, which they do with
hardly any other's and with no job of one's own: corrections from elsewhere made runs of unseen sources worse."""
RANGE = 3.0
"""Distance over which likeness falls to 1/e."""
OWN_COMMON = 0.6
"""Part of the likeness that all runs and jobs of a user's share, whatever their layout: one cluster, one release. Of
151 sources that nothing is fitted to, of three runs or more (presets/runs/unseen.csv), the means of what they are off
by deviate by 0.20, runs from their source's mean by 0.17: 0.6 of the variance."""
NOISES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0)
"""Variance of repeated runs over that of deviations: calibration takes what predicts a framework's runs best."""
YEARS = 0.25
"""Distance of one in years between releases of the same software."""
FARTHEST = 50.0
"""Times that a step may take of what is predicted, or the other way round. Of the shipped runs, each predicted from all
others, the one that is farthest off takes about 44 times as long (nanotron-1505, which waits); before any fit it is 29
(mlmci-0171)."""


class Likeness(NamedTuple):
    """What two jobs are compared by: logarithms (and last the year of the software) in units of distance, and names."""

    numbers: tuple[float, ...]
    names: tuple[str, ...]

    def compared(self) -> Self:
        """This run with the names by which a user's own runs and jobs are compared."""
        return self._replace(names=compared(self.names))


def likeness_of(setup: Setup, year: float, source: str = "") -> Likeness:
    """A setup's place among measured runs; ``year`` is that of the software, ``source`` who measured."""
    layout, model = setup.layout, setup.model
    values = {"hidden": model.hidden, "layers": model.layers, "gpus": layout.gpus, "tp": layout.tp, "pp": layout.pp,
              "cp": layout.cp, "ep": layout.ep, "micro_batch": layout.micro_batch,
              "micro_batches": layout.micro_batches, "seq": layout.seq, "vpp": layout.vpp}  # fmt: skip
    numbers = tuple(round(math.log2(max(values[name], 1)) / scale, 3) for name, scale in DOUBLINGS.items())
    numbers += (round(year / YEARS, 2),)  # six digits, as tables of evidence have them
    recipe = setup.precision.name + what_trains(setup)
    names = (setup.accelerator.name, recipe, setup.recompute, str(layout.zero), layout.attention,
             str(model.experts is not None), model.name, source)  # fmt: skip
    return Likeness(numbers, tuple(name.replace(",", ";").replace('"', "") for name in names))


def what_trains(setup: Setup) -> str:
    """A mark on the name of the recipe where only adapters train."""
    if setup.tuning is None:
        return ""
    return f"+lora+{setup.tuning.quantization.name}" if setup.tuning.quantization else "+lora"


def distances(one: Likeness, other: Likeness) -> tuple[float, float]:
    """Distance between two jobs, and what it would be had the same people measured both."""
    squared = 0.0
    for a, b in zip(one.numbers, other.numbers, strict=True):
        squared += (a - b) * (a - b)
    if one.names[:-1] != other.names[:-1]:
        for mine, yours, far in zip(one.names[:-1], other.names[:-1], DIFFERENCES.values(), strict=False):
            if mine != yours:
                squared += far * far
    elsewhere = DIFFERENCES["source"] if one.names[-1] != other.names[-1] else 0.0
    return math.sqrt(squared + elsewhere * elsewhere), math.sqrt(squared)


def alike(apart: Number) -> Number:
    """Likeness of jobs at a distance: the exponential kernel, 1 for the same job."""
    return exp(-apart / RANGE)


def shared(likeness: Number, own: Number) -> Number:
    """Likeness where ``own`` is 1 for a job and a run of the same user: never less than what all of these share."""
    return likeness + own * OWN_COMMON * (1 - likeness)


def bounded(logarithm: Number) -> Number:
    """A correction no larger than any run can be off."""
    return minimum(maximum(logarithm, -math.log(FARTHEST)), math.log(FARTHEST))


def vote_place(likeness: Likeness, fullness: float) -> tuple[float, ...]:
    """Where a job that fills its GPU so far stands in votes on the state of software."""
    logs = {name: value * scale for value, (name, scale) in zip(likeness.numbers, DOUBLINGS.items(), strict=False)}
    return place_of(logs, float(likeness.names[list(DIFFERENCES).index("zero")]), fullness)


def fullness_of(setup: Setup) -> float:
    """Peak of memory over what a GPU has."""
    from distsim.engine.memory import memory_of

    report = memory_of(setup)
    return report.peak / report.capacity
