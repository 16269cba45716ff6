"""What single changes of a job gained in measured runs beside what was predicted: how far advice can be trusted."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distsim.engine.advice.faster import LEAST_GAIN
from distsim.engine.evidence import Replay
from distsim.engine.ranking import LAYOUT, Timed, job_of, mean_of, timed

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "zero", "micro_batch")
CELLS = ("recompute", "attention", "precision", "compile")
"""Settings in which two runs may differ, one at a time: of the replayed layout, and as cells state them."""
LARGE_GAIN = 0.1
"""Gains from here on are more than what most predictions are off by."""


class Gain(NamedTuple):
    """Two settings of one job that differ in one: the gain predicted for the faster one, and that measured."""

    setting: str
    source: str
    promised: float
    """Share of the slower one's predicted time that the other saves, at least ``LEAST_GAIN``."""
    kept: float
    """The same of the measured times; negative where it was slower."""


class Kept(NamedTuple):
    """What became of the gains that were predicted for changes of one setting."""

    pairs: int
    sources: int
    large: int
    """Pairs that were promised a gain of ``LARGE_GAIN`` or more."""
    large_faster: float | None
    """Share of these that were measured to be faster; None where there are none."""
    large_promised: float | None
    large_kept: float | None
    """Medians of what these were promised and gained."""
    small_faster: float | None
    """Share that was faster of those that were promised less."""


def gains_of(replays: Iterable[Replay]) -> list[Gain]:
    """All pairs of one job's settings that differ in one and are not predicted to be equally fast."""
    setups = {one.run.id: one for one in replays}
    jobs: dict[object, dict[tuple[str, ...], list[Timed]]] = defaultdict(lambda: defaultdict(list))
    for run in timed(setups.values()):
        jobs[job_of(run, LAYOUT.union(CELLS))][_settings(setups[run.run.id])].append(run)
    return [gain for settings in jobs.values() for gain in _gains(settings)]


def kept_of(gains: Sequence[Gain]) -> dict[str, Kept]:
    """By setting, what became of promised gains; those with most pairs first."""
    groups: dict[str, list[Gain]] = defaultdict(list)
    for one in gains:
        groups[one.setting].append(one)
    return {name: summed(groups[name]) for name in sorted(groups, key=lambda name: (-len(groups[name]), name))}


def summed(gains: Sequence[Gain]) -> Kept:
    """What became of these promised gains."""
    large, small = ([one for one in gains if (one.promised >= LARGE_GAIN) is asked] for asked in (True, False))
    medians = [statistics.median(column) for column in zip(*((one.promised, one.kept) for one in large), strict=True)]
    promised, kept = medians or (None, None)
    sources = len({one.source for one in gains})
    return Kept(len(gains), sources, len(large), _faster(large), promised, kept, _faster(small))


def _settings(replay: Replay) -> tuple[str, ...]:
    layout = replay.setup.layout if replay.setup else None
    degrees = (str(int(getattr(layout, name))) for name in DEGREES)
    return (*degrees, *(replay.run.text(name) or "" for name in CELLS))


def _gains(settings: dict[tuple[str, ...], list[Timed]]) -> Iterable[Gain]:
    """Those of one job, by its settings; runs that share all of them count once."""
    for (one, runs), (other, others) in itertools.combinations(settings.items(), 2):
        changed = [name for name, a, b in zip((*DEGREES, *CELLS), one, other, strict=True) if a != b]
        slow, fast = sorted((mean_of(runs), mean_of(others)), key=lambda mean: -mean.predicted_seconds)
        promised = 1 - fast.predicted_seconds / slow.predicted_seconds
        if len(changed) == 1 and promised >= LEAST_GAIN:
            kept = 1 - fast.measured_seconds / slow.measured_seconds
            yield Gain(changed[0], runs[0].run.source, promised, kept)


def _faster(gains: Sequence[Gain]) -> float | None:
    return sum(one.kept > 0 for one in gains) / len(gains) if gains else None
