"""Tables of measured runs, as ``distsim calibrate`` writes them: of the runs that numbers are fitted to, and of sources
that nothing is fitted to."""

import csv
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from distsim import catalog
from distsim.engine.calibrated import kept_while_fitted
from distsim.engine.corrections.likeness import DIFFERENCES, DOUBLINGS, YEARS, Likeness, likeness_of, vote_place
from distsim.engine.corrections.own_runs import OWN
from distsim.engine.corrections.stalls import Vote
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup
from distsim.specs.timing import PLAIN, Kin

FOLDER, OTHERS, PEAKS = "evidence", "others", "peaks"
"""Where the tables of a fit stand beside its numbers, and in there those of sources that it did not see, and those of
peaks of memory."""
REACH, ROUNDED = 4.0, 0.002
"""GPUs of a job over those of a run from which it may be told how sure the job is, or the other way round; and what
numbers of tables are rounded by."""


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


def own_source(kin: Kin, source: str = "") -> str:
    """Who measures a job or run: the user, where own runs of the framework are known, unless another is named."""
    own = own_sources(kin)
    return OWN if own and (not source or source in own) else source


def newest_year(known: tuple[Evidence, ...], accelerator: str) -> float:
    """The year of the newest software that was measured on an accelerator; on any accelerator if this one has no
    measurements."""
    place = list(DIFFERENCES).index("gpu")
    same = [one for one in known if one.likeness.names[place] == accelerator]
    return max((one.likeness.numbers[-1] * YEARS for one in same or known), default=0.0)


@kept_while_fitted(32)
def evidence(kin: Kin) -> tuple[Evidence, ...]:
    """The measured runs of a framework, or of the one that it is timed like; none without measurements."""
    return tuple(_read(row) for row in _rows(kin))


@kept_while_fitted(32)
def others(kin: Kin) -> tuple[Evidence, ...]:
    """The measured runs of a framework, or of the one that it is timed like, of sources that nothing is fitted to."""
    return _beside(OTHERS, kin)


@kept_while_fitted(32)
def peaks(kin: Kin) -> tuple[Evidence, ...]:
    """The runs of a framework, or of the one that it is timed like, whose peak of memory was measured."""
    return _beside(PEAKS, kin)


def _beside(folder: str, kin: Kin) -> tuple[Evidence, ...]:
    own, like = (_folder() / folder / f"{name}.csv" for name in (kin.name, kin.like))
    return tuple(_read(row) for row in _lines(own if own.is_file() else like))


def unlike_own(setup: Setup) -> str:
    """A note on options that no run of the user's had as the job has them, with what most of them had; nothing where
    there are none."""
    kin = kin_of(setup.framework, setup.compiled)
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
        for known in evidence(kin_of(setup.framework, setup.compiled))
    )  # fmt: skip


def has_own(kin: Kin) -> bool:
    """Whether runs are known under a framework's own name."""
    return _table(kin.name).is_file()


def _folder() -> Path:
    return catalog.path("timing", "fitted").parent / FOLDER


def _table(framework: str) -> Path:
    return _folder() / f"{framework}.csv"


def _rows(kin: Kin) -> list[list[str]]:
    return _lines(_table(kin.name if has_own(kin) else kin.like))


def _lines(file: Path) -> list[list[str]]:
    """The lines of a table below its head; none where there is no such file."""
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
