"""Predictions compared with measured runs: one line per run, and summaries."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from distsim import catalog, keywords
from distsim.engine.counted import Pool, Show, counted
from distsim.engine.evidence import Replay, quantile, replay
from distsim.engine.ranking import Ranking, ranking_of, timed
from distsim.engine.runs.measured import told_counts
from distsim.engine.runs.profile import as_one_software
from distsim.engine.runs.time_units import time_cell, unit_note
from distsim.engine.single_changes import Gain, gains_of, kept_of
from distsim.errors import DistsimError, did_you_mean
from distsim.interop.runs import Run, odd_cells, read_runs

GROUPS = ("source", "gpu", "framework", "model")
PART = 50
"""Runs that a worker replays at once, a third of a second's work."""
ENOUGH = 8
"""Parts from which on several processes are quicker than one: a process takes about a second to start and to load what
runs need. Measured."""


@dataclass(frozen=True)
class Summary:
    """Errors over a set of runs; None where no run has the figure."""

    rows: int
    skipped: int
    timed_rows: int
    median_abs_error: float | None
    p90_abs_error: float | None
    bias: float | None
    interval_coverage: float | None
    memory_rows: int
    memory_median_abs_error: float | None
    memory_p90_abs_error: float | None
    memory_bias: float | None


@dataclass(frozen=True, repr=False, eq=False)
class Validation:
    """The answer of ``distsim validate``."""

    replays: tuple[Replay, ...]

    def __repr__(self) -> str:
        told, median = self.summary, self.summary.median_abs_error
        error = "" if median is None else f", median error {median:.1%}"
        return f"Validation({told.rows} runs, {told.skipped} skipped{error})"

    @property
    def summary(self) -> Summary:
        """Over all runs."""
        return summarise(self.replays)

    @property
    def ranking(self) -> Ranking | None:
        """How well the layouts of jobs are ranked that were measured in several; None where none was."""
        return ranking_of(timed(self.replays))

    @cached_property
    def gains(self) -> list[Gain]:
        """What single changes of a job's settings promised and gained, where runs were measured with both."""
        return gains_of(self.replays)

    @property
    def odd(self) -> list[str]:
        """Cells that hold no number where one is expected, times that are in another unit, runs with neither time nor
        peak."""
        timed = [(time_cell(one.run), one.ratio) for one in self.replays if one.ratio is not None]
        blank = [one.run.id for one in self.replays if not (one.reason or one.measured_seconds or one.measured_peak)]
        names = ", ".join(blank[:3]) + (", …" if len(blank) > 3 else "")
        what = "row has" if len(blank) == 1 else "rows have"
        bare = f"{len(blank)} {what} neither a measured step time nor a measured peak to compare with ({names})"
        return [
            *odd_cells([one.run for one in self.replays], counts=told_counts),
            *unit_note(timed),
            *([bare] if blank else []),
        ]

    def by(self, group: str) -> dict[str, Summary]:
        """Over the runs of each source, gpu, framework or model, the largest group first. Raises DistsimError for
        another group."""
        check_group(group)
        groups: dict[str, list[Replay]] = defaultdict(list)
        for one in self.replays:
            groups[group_name(one.run, group)].append(one)
        return {name: summarise(members) for name, members in sorted(groups.items(), key=lambda pair: -len(pair[1]))}

    def to_dict(self, by: str | None = None) -> dict[str, Any]:
        """As in the JSON contract."""
        data: dict[str, Any] = {
            "schema": "distsim.validate/1",
            "rows": [_row(one) for one in self.replays],
            "summary": vars(self.summary),
            "ranking": self.ranking and self.ranking._asdict(),
            "changes": {name: one._asdict() for name, one in kept_of(self.gains).items()},
        }
        if by:
            data["by"] = {name: vars(summary) for name, summary in self.by(by).items()}
        return data


def check_group(name: str) -> None:
    """Raise for what runs are not summarised by."""
    if name not in GROUPS:
        near = did_you_mean(str(name), GROUPS)
        raise DistsimError(f"cannot summarise by {name!r}", near, f"groups: {', '.join(GROUPS)}")


def shipped_runs() -> Path:
    """The measured runs that come with distsim."""
    return catalog.path("runs", "published")


def unseen_runs() -> Path:
    """Further measured runs that come with distsim, of sources that nothing was fitted to."""
    return catalog.path("runs", "unseen")


def validate(runs: str | Path | None = None) -> Validation:
    """Compare predictions with the measured runs of a file, or with those that come with distsim, as ``distsim
    validate`` does. Raises DistsimError for a file that is not a table of runs."""
    return validate_file(shipped_runs() if runs is None else Path(keywords.word("runs", runs)))


def validate_file(path: Path, show: Show | None = None, pool: Pool | None = None) -> Validation:
    """Replay every run of a file, in a pool's processes if one is given, with the same answer; a user's own as
    ``distsim calibrate`` fits them. Each of the shipped ones that nothing is fitted to is predicted as if its source
    had no others. ``show`` hears how many are done."""
    runs, strange = read_runs(path), path.samefile(unseen_runs())
    if not strange and not path.samefile(shipped_runs()):
        runs = as_one_software(runs)
    if pool is not None:
        return Validation(_shared(runs, strange, show, pool))
    with catalog.settled():
        return Validation(tuple(replay(run, strange) for run in counted(runs, show)))


def _shared(runs: Sequence[Run], strange: bool, show: Show | None, pool: Pool) -> tuple[Replay, ...]:
    """Replays by the workers of a pool, in the order of the runs. Neighbours stay together, as they name the same
    presets."""
    parts = [(tuple(runs[first : first + PART]), strange) for first in range(0, len(runs), PART)]
    made: dict[int, list[Replay]] = {}
    for place, replays in pool.share(replays_of, parts):
        made[place] = replays
        if show is not None:
            show(sum(map(len, made.values())), len(runs))
    return tuple(one for _, replays in sorted(made.items()) for one in replays)


@catalog.settled()
def replays_of(part: tuple[Sequence[Run], bool]) -> list[Replay]:
    """Each of some runs replayed, and whether as strange ones."""
    runs, strange = part
    return [replay(run, strange) for run in runs]


def group_name(run: Run, group: str) -> str:
    """The name under which a run is summarised."""
    return run.source if group == "source" else run.text(group) or "?"


def _over(values: Sequence[float], function: Callable[[Sequence[float]], float]) -> float | None:
    return function(values) if values else None


def summarise(replays: Sequence[Replay]) -> Summary:
    """Medians and 90th percentiles of absolute errors; bias is the median signed error."""
    answered = [one for one in replays if not one.reason]
    timed = [one.error for one in answered if one.error is not None]
    memory = [one.memory_error for one in answered if one.memory_error is not None]
    covered = [one.covered for one in answered if one.covered is not None]

    def p90(errors: Sequence[float]) -> float:
        return quantile(map(abs, errors), 0.9)

    def middle(errors: Sequence[float]) -> float:
        return statistics.median(map(abs, errors))

    return Summary(
        len(answered), len(replays) - len(answered), len(timed),
        _over(timed, middle), _over(timed, p90), _over(timed, statistics.median),
        _over([float(one) for one in covered], statistics.fmean),
        len(memory), _over(memory, middle), _over(memory, p90), _over(memory, statistics.median),
    )  # fmt: skip


FIGURES = ("measured", "predicted", "interval", "error", "memory_error")
"""Keys of a row that a skipped one has as null."""


def _row(one: Replay) -> dict[str, Any]:
    data: dict[str, Any] = {"id": one.run.id, "status": "skipped" if one.reason else "ok", "reason": one.reason or None}
    if one.reason:
        return {**data, **dict.fromkeys(FIGURES)}
    if one.assumed:
        data["assumed"] = one.assumed
    return {
        **data,
        "measured": {"step_seconds": one.measured_seconds, "peak_memory": _whole(one.measured_peak)},
        "predicted": {"step_seconds": one.predicted_seconds, "peak_memory": _whole(one.predicted_peak)},
        "interval": one.interval and dict(one.interval), "error": one.error, "memory_error": one.memory_error,
    }  # fmt: skip


def _whole(size: float | None) -> int | None:
    """Bytes as the JSON has them; a figure that was printed in GiB is none to the byte."""
    return None if size is None else round(size)
