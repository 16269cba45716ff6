"""``distsim calibrate RUNS.csv``: from measured runs to the presets of the step-time model, with its honest errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distsim import catalog
from distsim.engine.corrections.known_runs import FOLDER, OTHERS, PEAKS
from distsim.engine.counted import Show, counted
from distsim.engine.evidence import Replay, assumed_of
from distsim.engine.fitting.evidence import LeftOut, corrected, write_evidence
from distsim.engine.fitting.fit import Factors, Fit, fit, unfitted
from distsim.engine.fitting.moved import moved_groups
from distsim.engine.fitting.others import others_of, strange_replays
from distsim.engine.fitting.peaks import peaks_of, write_peaks
from distsim.engine.fitting.table import (
    Example,
    Table,
    as_own,
    by_setting,
    example_of,
    in_state,
    nearest_states,
    setting_counts,
    setting_of,
)
from distsim.engine.fitting.write import (
    Score,
    fitted_toml,
    folds,
    left_out,
    priors_of,
    refuse_unwritable,
    residuals_toml,
    score,
    write,
)
from distsim.engine.runs.measured import measured_seconds, told_counts
from distsim.engine.runs.profile import as_one_software, assumed_software
from distsim.engine.runs.setup import setup_of
from distsim.engine.runs.time_units import beyond, time_cell, unit_note
from distsim.engine.runs.too_fast import check_possible
from distsim.engine.runs.years import run_year
from distsim.engine.steps.intervals import FEW_MOVED
from distsim.engine.validate import shipped_runs, unseen_runs
from distsim.errors import DistsimError
from distsim.interop.runs import TIMES, MissingCell, Run, odd_cells, read_runs
from distsim.specs.timing import PLAIN

NO_TIME = f"{', '.join(TIMES)} are blank, and there is no FLOP/s figure with its flops_kind"
FIRST_RATIO = "first_predicted_over_measured"
"""Column of the shipped runs that nothing is fitted to: the step time predicted before anybody had read the run, over
the measured one."""
FEWEST = 8
"""Runs below which nothing can be said of numbers that differ between runs."""


@dataclass(frozen=True)
class Calibration:
    """What was fitted, to what, and how well it does."""

    fitted: Fit
    examples: tuple[Example, ...]
    skipped: dict[str, int]
    odd: list[str]
    """Cells that hold no number where one is expected, of the user's table if there is one."""
    scores: dict[str, Score]
    own: tuple[Example, ...] = ()
    """The user's."""
    own_skipped: dict[str, int] = field(default_factory=dict)
    """Why rows of the user's are not among them, and how many."""
    source_out: tuple[float, ...] = ()
    """Of each example, predicted over measured as a logarithm, by a fit without its source."""

    @property
    def assumed(self) -> dict[str, int]:
        """What was taken for granted of the user's runs, and of how many."""
        return dict(Counter(example.assumed for example in self.own if example.assumed).most_common())

    @property
    def own_frameworks(self) -> dict[str, int]:
        """Frameworks that the user's jobs must name to be corrected by the user's runs, and by how many, repeats of a
        setting counted once."""
        return setting_counts(self.own)

    @property
    def own_settings(self) -> int:
        """How many settings the user's runs are of: fewer than runs where some were repeated."""
        return sum(self.own_frameworks.values())

    @property
    def still_to_measure(self) -> dict[str, int]:
        """By framework of the user's, how many more settings narrow the intervals of all its layouts."""
        return {name: FEW_MOVED - count for name, count in self.own_frameworks.items() if count < FEW_MOVED}


def examples_of(
    runs: Sequence[Run], mine: bool = False, show: Show | None = None
) -> tuple[list[Example], dict[str, int]]:
    """Runs with a step time as numbers, and why the others are not among them. A user's own (``mine``) may be of
    software without a profile: whatever stands for it stands for the user's jobs, too."""
    with catalog.settled():
        return _examples(as_one_software(runs) if mine else runs, mine, show)


def _examples(runs: Sequence[Run], mine: bool, show: Show | None) -> tuple[list[Example], dict[str, int]]:
    found: list[Example] = []
    reasons: Counter[str] = Counter()
    for run in counted(runs, show):
        try:
            run.refuse_slips()
            setup = setup_of(run)
            seconds = measured_seconds(run, setup)
            if not seconds:
                raise MissingCell(NO_TIME)
            check_possible(run, setup, seconds)
            if assumed := assumed_of(run, setup, software=not mine):
                raise MissingCell(assumed)
            example = example_of(setup, seconds, run.id, run.source, run_year(run))
            told = assumed_software(run, setup)
            what = setting_of(setup) if mine else ""
            found.append(replace(example, timed_by=time_cell(run), assumed=told, what=what))
        except MissingCell as missing:
            reasons[str(missing)] += 1
        except DistsimError as error:
            reasons[error.problem] += 1
    return found, dict(reasons.most_common())


class _Read(NamedTuple):
    """A file's runs as numbers, why others are not among them, and odd cells."""

    examples: list[Example]
    skipped: dict[str, int]
    odd: list[str]


def _read(file: Path, least: int, mine: bool = False, show: Show | None = None) -> _Read:
    """The runs of a file, which must be of some use."""
    runs = read_runs(file)
    found, skipped = examples_of(runs, mine, show)
    examples, beyond_all, units = _told_apart(found)
    skipped = dict((Counter(skipped) + beyond_all).most_common())
    if mine:
        examples = by_setting(examples)
    different = sum(setting_counts(examples).values()) if mine else len(examples)
    if different < least:
        repeated = f" of {different} different setting{'s'[: different != 1]}" if different < len(examples) else ""
        raise DistsimError(
            f"too few usable runs with a step time to fit: {len(examples)}{repeated}",
            f"give at least {least}" if examples else "distsim validate shows what each row lacks",
            *(f"skipped {count}: {reason}" for reason, count in list(skipped.items())[:3]), where=str(file),
        )  # fmt: skip
    return _Read(examples, skipped, [*odd_cells(runs, counts=told_counts), *units])


def _told_apart(found: Sequence[Example]) -> tuple[list[Example], Counter[str], list[str]]:
    """Runs whose times can be what they say, why others cannot, and what to ask of all: held against the priors, which
    no run moved."""
    if not found:
        return [], Counter(), []
    rest = unfitted(Factors(found)).residuals(Table.of(found))
    ratios = np.exp(-in_state(rest, nearest_states(found, rest))).tolist()
    pairs = [(example.timed_by, ratio) for example, ratio in zip(found, ratios, strict=True)]
    why = [beyond(*pair) for pair in pairs]
    kept = [example for example, words in zip(found, why, strict=True) if not words]
    return kept, Counter(filter(None, why)), unit_note(pairs)


def calibrate(
    files: Sequence[Path], folder: Path, mine: bool = True, show: Show | None = None, fits: Show | None = None
) -> Calibration:
    """Fit to all runs of the files and write the presets into a folder. The last file is the user's own if it is
    ``mine``: what is wrong with it is told before the shipped runs are read and the minutes of a fit are spent.
    ``show`` hears how many runs are read, ``fits`` how many fits without some of them are made."""
    own = _read(files[-1], FEWEST if len(files) == 1 else 1, mine, show)
    refuse_unwritable(folder)
    read = [*(_read(file, FEWEST, show=show) for file in files[:-1]), own]
    examples = [example for one in read for example in one.examples]
    theirs = {example.source for example in own.examples} if mine else set()
    marked = [as_own(example) if example.source in theirs else example for example in examples]
    skipped = dict(sum((Counter(one.skipped) for one in read), Counter()).most_common())
    priors, table = priors_of(examples), Table.of(examples)
    factors = Factors(examples)
    before = unfitted(factors).residuals(table)
    fitted = fit(table)
    after = fitted.residuals(table)
    parts, sources = folds(examples), [example.source for example in examples]
    rows_out, sources_out = left_out(table, parts, fitted, fits), left_out(table, sources, fitted, fits)
    near, far = corrected(marked, parts, rows_out), corrected(examples, sources, sources_out)
    scores = _scores(examples, before, after, near, far)
    shipped = any(map(shipped_runs().samefile, files))
    strange = _unseen(fitted, examples) if shipped else []
    beside = strange_replays(read_runs(unseen_runs()), show) if shipped else []
    others = others_of(beside, fitted) if beside else None
    if others:
        scores["runs of sources never fitted"] = score([one for one, _ in strange], np.array([r for _, r in strange]))
        scores["fifths of these, corrected by alike runs"] = score(others.examples, others.left_out.corrected)
    moved = None if mine else moved_groups(examples_of(read_runs(unseen_runs()), mine=True)[0])
    peaks = peaks_of([*_replays(files, mine, show), *beside], frozenset(theirs))
    write(folder, fitted_toml(fitted, priors, ", ".join(file.name for file in files), len(examples), len(set(sources))),
          residuals_toml(examples, (near.corrected, near.nearest), far.corrected,
                         nearest_states(examples, after) == PLAIN, _unread(strange), moved,
                         others and (others.examples, others.near)))  # fmt: skip
    write_evidence(folder / FOLDER, marked, after)
    write_evidence(folder / FOLDER / OTHERS, *(others[:2] if others else ((), np.zeros((1, 0)))))
    write_peaks(folder / FOLDER / PEAKS, peaks)
    odd = own.odd if mine else [words for one in read for words in one.odd]
    theirs_only = (tuple(own.examples), own.skipped) if mine else ((), {})
    return Calibration(fitted, tuple(examples), skipped, odd, scores, *theirs_only, tuple(map(float, far.residuals)))


def _scores(examples: Sequence[Example], before: Any, after: Any, near: LeftOut, far: LeftOut) -> dict[str, Score]:
    """How far runs are off by what is known of them: nothing, themselves, other fifths of the runs, other sources."""
    return {
        "before: priors only": score(examples, in_state(before, nearest_states(examples, before))),
        "after: fitted": score(examples, in_state(after, nearest_states(examples, after))),
        "fifths of the runs left out": score(examples, near.residuals),
        "fifths, corrected by alike runs": score(examples, near.corrected),
        "whole sources left out": score(examples, far.residuals),
        "sources, corrected by alike runs": score(examples, far.corrected),
    }  # fmt: skip


def _replays(files: Sequence[Path], mine: bool, show: Show | None) -> list[Replay]:
    """All runs of the files as if nobody had measured others of their sources; of the last one as the user's."""
    runs = [read_runs(file) for file in files]
    if mine:
        runs[-1] = as_one_software(runs[-1])
    return strange_replays([run for some in runs for run in some], show)


def _unseen(fitted: Fit, examples: Sequence[Example]) -> list[tuple[Example, float]]:
    """Runs of sources that nothing is fitted to, with the residuals that fit and alike runs leave of them."""
    known = {example.source for example in examples}
    new = [example for example in examples_of(read_runs(unseen_runs()))[0] if example.source not in known]
    everything = [*examples, *new]
    labels = [place >= len(examples) for place in range(len(everything))]
    residuals = fitted.residuals(Table.of(everything))
    left = corrected(everything, labels, dict.fromkeys((False, True), residuals)).corrected
    return [(example, float(left[len(examples) + place])) for place, example in enumerate(new)]


def _unread(strange: Sequence[tuple[Example, float]]) -> list[tuple[Example, float]]:
    """The same, with the residuals of what was predicted before anybody had read the run where the table has it: what
    runs teach makes them better known than a job of the user's is."""
    first = {run.text("id"): run.positive(FIRST_RATIO) for run in read_runs(unseen_runs())}
    return [(one, math.log(ratio) if (ratio := first.get(one.id)) else residual) for one, residual in strange]


def by_source(examples: Sequence[Example]) -> dict[str, int]:
    """How many runs each source gives, the largest first."""
    return dict(Counter(example.source for example in examples).most_common())
