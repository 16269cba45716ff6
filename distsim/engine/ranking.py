"""How well layouts are ranked, which is what a search is for: measured runs that differ in their layout alone."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from distsim.engine.evidence import Replay, quantile
from distsim.interop.runs import Run

LAYOUT = {
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage", "fsdp_kind", "sequence_parallel", "micro_batch",
    "grad_accum", "recompute",
}  # fmt: skip
"""Cells in which runs of one job may differ."""
RESULTS = {
    "id", "tier", "notes", "step_time_s", "tokens_per_s_per_gpu", "samples_per_s", "tflops_per_gpu_reported",
    "flops_kind", "mfu_pct", "hfu_pct", "mem_peak_gb_per_gpu", "mem_kind", "first_predicted_over_measured", "source",
}  # fmt: skip
"""Cells that say nothing of the job; of its source the name counts (``Run.source``)."""
NOISE = 0.03
"""Times nearer than this share are in no order: repeats of one layout differ by 0.5 to 2%."""
ROUNDING = 1e-9
"""Predictions nearer than this share are equal, or the order of sums that differ in their last bits would count."""
FEWEST_LAYOUTS, FEWEST_PAIRS = 3, 3
"""Layouts of a job that is counted, and pairs of them that are in an order."""


class Timed(NamedTuple):
    """A run with its measured and its predicted seconds of a step."""

    run: Run
    measured_seconds: float
    predicted_seconds: float
    step_tokens: float = 0.0
    """Tokens of its step: with fewer or more it is another job, whatever its cells leave blank."""


class Ranking(NamedTuple):
    """How well the layouts of some jobs are ranked."""

    jobs: int
    runs: int
    """All runs of these jobs, those that repeat a layout among them."""
    tau: float
    """Kendall's, in the mean of jobs: 1 where all pairs are in the measured order, 0 where half of them are."""
    pairs_tau: float
    """The same of all pairs of all jobs."""
    regret_median: float
    """Measured time of the layout that is predicted to be fastest (mean of equals), over the fastest's, less one."""
    regret_p90: float


class Mean(NamedTuple):
    """Geometric means of the times of runs that share all settings: one layout, however often it was measured."""

    measured_seconds: float
    predicted_seconds: float


class _Job(NamedTuple):
    """One job's part in it."""

    runs: int
    layouts: int
    pairs: int
    agreed: int
    regret: float


def ranking_of(runs: Iterable[Timed]) -> Ranking | None:
    """How well predictions rank the layouts of each job that was measured in several; None where none was."""
    members: dict[object, list[Timed]] = defaultdict(list)
    for one in runs:
        members[job_of(one, LAYOUT)].append(one)
    every = map(_ranked, members.values())
    jobs = [one for one in every if one.layouts >= FEWEST_LAYOUTS and one.pairs >= FEWEST_PAIRS]
    if not jobs:
        return None
    pairs, regrets = sum(one.pairs for one in jobs), [one.regret for one in jobs]
    return Ranking(
        len(jobs), sum(one.runs for one in jobs), statistics.fmean(one.agreed / one.pairs for one in jobs),
        sum(one.agreed for one in jobs) / pairs, statistics.median(regrets), quantile(regrets, 0.9),
    )  # fmt: skip


def timed(replays: Iterable[Replay]) -> list[Timed]:
    """The replays that have a step time to hold against the prediction."""
    return [
        Timed(one.run, one.measured_seconds, one.predicted_seconds, one.setup.layout.step_tokens)
        for one in replays
        if one.setup is not None and one.error is not None and one.measured_seconds and one.predicted_seconds
    ]


def job_of(one: Timed, free: Collection[str]) -> object:
    """All that the runs of one job share, which may differ in the ``free`` cells and in what was measured."""
    cells = ((name, text.strip()) for name, text in sorted(one.run.cells.items()) if name not in RESULTS.union(free))
    return one.run.source, one.step_tokens, tuple(cells)


def mean_of(runs: Sequence[Timed]) -> Mean:
    """What runs that share all settings took on average."""
    pairs = zip(*((one.measured_seconds, one.predicted_seconds) for one in runs), strict=True)
    return Mean(*map(statistics.geometric_mean, pairs))


def _ranked(members: Sequence[Timed]) -> _Job:
    """One job: what was measured several times in one layout says nothing of layouts."""
    alike: dict[object, list[Timed]] = defaultdict(list)
    for run in members:
        alike[tuple((run.run.text(name) or "") for name in sorted(LAYOUT))].append(run)
    layouts = [mean_of(runs) for runs in alike.values()]
    agreed = pairs = 0
    for one, other in itertools.combinations(layouts, 2):
        if abs(math.log(one.measured_seconds / other.measured_seconds)) >= NOISE:
            pairs += 1
            if not _equal(one.predicted_seconds, other.predicted_seconds):
                slower = one.measured_seconds > other.measured_seconds
                agreed += 1 if slower == (one.predicted_seconds > other.predicted_seconds) else -1
    first = min(one.predicted_seconds for one in layouts)
    chosen = [one.measured_seconds for one in layouts if _equal(one.predicted_seconds, first)]
    regret = statistics.fmean(chosen) / min(one.measured_seconds for one in layouts) - 1
    return _Job(len(members), len(layouts), pairs, agreed, regret)


def _equal(one_seconds: float, other_seconds: float) -> bool:
    return math.isclose(one_seconds, other_seconds, rel_tol=ROUNDING)
