"""Runs of sources that nothing is fitted to, as what they say of further runs of the same sources.

No number is fitted to them. What is left of one is expected of others of its source alone, as it is of runs that are
fitted to; jobs of nobody's have nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.corrections.documents import has_company
from distsim.engine.counted import Show, counted
from distsim.engine.evidence import Replay, as_timed, replay
from distsim.engine.fitting.evidence import LeftOut, corrected
from distsim.engine.fitting.fit import Fit
from distsim.engine.fitting.table import Example, Table, example_of
from distsim.engine.fitting.write import folds
from distsim.engine.runs.years import run_year
from distsim.interop.runs import Run
from distsim.interop.runs.models import layer_alone
from distsim.interop.runs.training import without_update


class Others(NamedTuple):
    """Such runs, what the fit leaves of them (one row per state of their software), and what is left of those that were
    left out a fifth at a time."""

    examples: list[Example]
    residuals: Any
    left_out: LeftOut

    @property
    def near(self) -> tuple[Any, Any]:
        """Of those left out, what is left, and likeness of the nearest run."""
        return self.left_out.corrected, self.left_out.nearest


def others_of(replays: Sequence[Replay], fitted: Fit) -> Others:
    """Those of the runs in whose documents none stand that numbers are fitted to, and what may be learned from them."""
    examples = examples_of_others(replays)
    residuals = fitted.residuals(Table.of(examples))
    parts = folds(examples)
    return Others(examples, residuals, corrected(examples, parts, dict.fromkeys(parts, residuals)))


@catalog.settled()
def strange_replays(runs: Sequence[Run], show: Show | None = None) -> list[Replay]:
    """Runs replayed as if nobody had measured others of their sources."""
    return [replay(run, strange=True) for run in counted(runs, show)]


@catalog.settled()
def as_strange(replays: Sequence[Replay], runs: Sequence[Run]) -> list[Replay]:
    """What ``strange_replays`` says of runs, made of their replays: where numbers are fitted to other runs of the same
    document, only what other runs say of peaks is undone."""
    return [
        replace(one, predicted_peak=one.peak_alone) if has_company(run) else replay(run, strange=True)
        for one, run in zip(replays, runs, strict=True)
    ]


@catalog.settled()
def examples_of_others(replays: Sequence[Replay]) -> list[Example]:
    """Runs of a whole step as they are replayed: those of which a replay takes something for granted as well, as it
    does of further runs there."""
    found = []
    for one in replays:
        run, setup, seconds = one.run, one.setup, one.measured_seconds
        if one.error is None or setup is None or not seconds or has_company(run) or not _whole(run):
            continue
        found.append(example_of(as_timed(run, setup), seconds, run.id, run.source, run_year(run)))
    return found


def _whole(run: Run) -> bool:
    return not layer_alone(run) and not without_update(run)
