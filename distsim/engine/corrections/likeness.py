"""How similar two jobs are, and what measured runs of the same framework say about the prediction error of a job.

Step times of measured runs deviate from the fitted model by amounts that similar runs share. Kriging (a Gaussian
process with an exponential kernel; Rasmussen and Williams 2006, chapter 2) weighs those deviations by likeness; far
from every run there is no correction. A run is never used to correct itself.
"""

import csv
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Self

from distsim import catalog
from distsim.arrays import Number, exp, maximum, minimum
from distsim.engine.calibrated import kept_while_fitted
from distsim.engine.corrections.own_runs import OWN, compared
from distsim.engine.corrections.stalls import Vote, distinct_state, place_of, state_of
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup
from distsim.specs.timing import PLAIN, Kin

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
ALIKE, SIMILAR = 0.7, 0.4
"""Likeness to the nearest run from which a job goes by these words."""
FARTHEST = 50.0
"""Times that a step may take of what is predicted, or the other way round. Of the shipped runs, each predicted from all
others, the one that is farthest off takes about 44 times as long (nanotron-1505, which waits); before any fit it is 29
(mlmci-0171)."""
REACH, ROUNDED = 4.0, 0.002
"""GPUs of a job over those of a run from which it may be told how sure the job is, or the other way round; and what
numbers of tables are rounded by."""
FOLDER = "evidence"


class Likeness(NamedTuple):
    """What two jobs are compared by: logarithms (and last the year of the software) in units of distance, and names."""

    numbers: tuple[float, ...]
    names: tuple[str, ...]

    def compared(self) -> Self:
        """This run with the names by which a user's own runs and jobs are compared."""
        return self._replace(names=compared(self.names))


class Evidence(NamedTuple):
    """One measured run: its likeness, its weight in the correction, and the correction that all others give it."""

    run: str
    likeness: Likeness
    weight: float
    alone: float
    nearest: float
    """Likeness of the most similar other run."""
    state: int = PLAIN
    """Of its software."""
    alone_state: int = PLAIN
    """The one that all other runs give it."""
    vote: Vote | None = None


class Correction(NamedTuple):
    """Deviation (of the logarithm of time) to be expected, likeness of the nearest run, the nearest runs, and the state
    of the software (specs/timing.py) that runs like the job were in."""

    logarithm: float
    nearest: float
    runs: tuple[str, ...]
    state: int = PLAIN
    familiar: bool = False
    """Whether the job is a run of a source whose other runs are known: same cluster, same settings."""
    own: bool = False
    """Whether that source is the user."""

    def within(self, document: bool) -> Self:
        """Familiar only where its source's other runs are of the same document, as all of a user's are."""
        return self._replace(familiar=self.familiar and (self.own or document))

    @property
    def word(self) -> str:
        """How well the job is covered by measured runs."""
        return "alike" if self.nearest >= ALIKE else "similar" if self.nearest >= SIMILAR else "unlike"


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


def own_source(kin: Kin, source: str = "") -> str:
    """Who measures a job or run: the user, where own runs of the framework are known, unless another is named."""
    own = own_sources(kin)
    return OWN if own and (not source or source in own) else source


def bounded(logarithm: Number) -> Number:
    """A correction no larger than any run can be off."""
    return minimum(maximum(logarithm, -math.log(FARTHEST)), math.log(FARTHEST))


def vote_place(likeness: Likeness, fullness: float) -> tuple[float, ...]:
    """Where a job that fills its GPU so far stands in votes on the state of software."""
    logs = {name: value * scale for value, (name, scale) in zip(likeness.numbers, DOUBLINGS.items(), strict=False)}
    return place_of(logs, float(likeness.names[list(DIFFERENCES).index("zero")]), fullness)


def correction_of(setup: Setup, run: str = "", year: float | None = None, source: str = "") -> Correction:
    """What measured runs say of a job; ``run`` names the measured run that the job is, if it is one. Software is that
    of ``year``, in the state that similar runs were in; or the newest measured on the chip, in its plain state."""
    kin = kin_of(setup.framework)
    all_known = evidence(kin)
    source = own_source(kin, source)
    then = newest_year(all_known, setup.accelerator.name) if year is None else year
    stated = likeness_of(setup, then, source)
    here = stated.compared()
    familiar = any(known.run != run and known.likeness.names[-1] == here.names[-1] for known in all_known)
    for known in all_known:
        if known.run == run and known.likeness == here:
            return Correction(bounded(known.alone), known.nearest, (), known.alone_state, familiar, source == OWN)
    # who else measured tells nothing of the software that a sweep ran in
    votes = [one.vote for one in all_known if one.vote and one.likeness.names[-1] == here.names[-1]]
    state, sure = _state(setup, stated, votes) if votes and year is not None else (PLAIN, 1.0)
    total = 0.0
    near: list[tuple[float, str]] = []
    for known in all_known:
        if known.state == state:
            apart, besides = distances(here, known.likeness)
            total += known.weight * shared(alike(apart), known.likeness.names[-1] == here.names[-1] == OWN)
            near.append((alike(apart if familiar else besides) * sure, known.run))
    near.sort(reverse=True)
    runs = tuple(name for share, name in near[:3] if share >= SIMILAR)
    return Correction(bounded(total), near[0][0] if near else 0.0, runs, state, familiar, source == OWN)


def fullness_of(setup: Setup) -> float:
    """Peak of memory over what a GPU has."""
    from distsim.engine.memory import memory_of

    report = memory_of(setup)
    return report.peak / report.capacity


def newest_year(known: tuple[Evidence, ...], accelerator: str) -> float:
    """The year of the newest software that was measured on an accelerator; on any accelerator if this one has no
    measurements."""
    place = list(DIFFERENCES).index("gpu")
    same = [one for one in known if one.likeness.names[place] == accelerator]
    return max((one.likeness.numbers[-1] * YEARS for one in same or known), default=0.0)


def _state(setup: Setup, here: Likeness, votes: list[Vote]) -> tuple[int, float]:
    """The state of software to expect, and how likely it is."""
    layout = setup.layout
    state, sure = state_of(vote_place(here, fullness_of(setup)), votes)
    nodes = layout.gpus / setup.cluster.gpus_per_node
    return distinct_state(state, layout.tp, layout.pp, nodes), min(max(sure, 0.0), 1.0)


@kept_while_fitted(32)
def evidence(kin: Kin) -> tuple[Evidence, ...]:
    """The measured runs of a framework, or of the one that it is timed like; none without measurements."""
    return tuple(_read(row) for row in _rows(kin))


def unlike_own(setup: Setup) -> str:
    """A note on options that no run of the user's had as the job has them, with what most of them had; nothing where
    there are none."""
    kin = kin_of(setup.framework)
    if not own_sources(kin):
        return ""
    rows = [row[_NAMES:] for row in _rows(kin) if row[_SOURCE].startswith(OWN)]
    here = likeness_of(setup, 0.0).names
    told = []
    for place, name in enumerate(DIFFERENCES):
        had = Counter(row[place].split("+")[0] for row in rows)
        if name in OPTIONS and here[place].split("+")[0] not in had:
            told.append(f"--{name} {had.most_common(1)[0][0]}")
    if not told:
        return ""
    whose = kin.name if has_own(kin) else kin.like
    return f"your measured runs under {whose} used, or are assumed to have used, {' '.join(told)}, unlike this job"


@kept_while_fitted(32)
def own_sources(kin: Kin) -> frozenset[str]:
    """Sources of the user's own runs of a framework."""
    found = (row[_SOURCE] for row in _rows(kin))
    return frozenset(source.removeprefix(OWN) for source in found if source.startswith(OWN))


def own_beside(setup: Setup) -> bool:
    """Whether one of the user's own runs is of a job's accelerator and recipe, on as many GPUs by a factor of ``REACH``
    at most."""
    here, place = likeness_of(setup, 0.0, OWN).compared(), list(DOUBLINGS).index("gpus")
    far = math.log2(REACH) / DOUBLINGS["gpus"] + ROUNDED
    return any(
        known.likeness.names[-1] == OWN and known.likeness.names[:2] == here.names[:2]
        and abs(known.likeness.numbers[place] - here.numbers[place]) <= far
        for known in evidence(kin_of(setup.framework))
    )  # fmt: skip


def has_own(kin: Kin) -> bool:
    """Whether runs are known under a framework's own name."""
    return _table(kin.name).is_file()


def _table(framework: str) -> Path:
    return catalog.path("timing", "fitted").parent / FOLDER / f"{framework}.csv"


def _rows(kin: Kin) -> list[list[str]]:
    file = _table(kin.name if has_own(kin) else kin.like)
    if not file.is_file():
        return []
    with open(file, newline="", encoding="utf-8") as table:
        return list(csv.reader(table))[1:]


_NAMES = 4 + len(DOUBLINGS) + 1
"""Where names begin in a line of an evidence table."""
_SOURCE = _NAMES + len(DIFFERENCES) - 1
"""Where the source stands, the last of them."""
OPTIONS = ("precision", "recompute", "zero", "attention")
"""Differences that are options of a job, which may be another's default than that of runs whose cells are blank."""


def _read(row: list[str]) -> Evidence:
    """A line of an evidence table; the last columns are there where software had several states."""
    states = _NAMES + len(DIFFERENCES)
    likeness = Likeness(tuple(map(float, row[4:_NAMES])), tuple(row[_NAMES:states]))
    base = Evidence(row[0], likeness.compared(), float(row[1]), float(row[2]), float(row[3]))
    if len(row) == states:
        return base
    own, alone, fullness, checked, stalled = map(float, row[states:])
    vote = Vote(vote_place(likeness, fullness), checked, stalled)
    return base._replace(state=int(own), alone_state=int(alone), vote=vote)
