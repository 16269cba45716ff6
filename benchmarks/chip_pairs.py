"""Writes how well two accelerators are compared: pairs of runs of one source that differ in the accelerator.

Over the runs of sources that nothing was fitted to. Of runs of one job (source, model, accelerators, sequence, batch,
precision, software) on one accelerator the fastest counts, in whatever layout, as a plan compares the best of each.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

from distsim.engine.evidence import Replay
from distsim.engine.validate import unseen_runs, validate_file

JOB = ("source", "model", "n_gpus", "seq_len", "global_batch", "precision", "framework", "finetune_kind")


def errors(replays: Iterable[Replay]) -> dict[str, list[float]]:
    """For each source the errors of its pairs: how far the logarithm of predicted ratios is from that of measured."""
    jobs: dict[tuple[str | None, ...], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for one in replays:
        if not one.reason and one.measured_seconds and one.predicted_seconds is not None:
            job = tuple(one.run.text(name) for name in JOB)
            jobs[job][one.run.text("gpu") or ""].append((one.measured_seconds, one.predicted_seconds))
    found: dict[str, list[float]] = defaultdict(list)
    for job, chips in jobs.items():
        best = [[min(times) for times in zip(*runs, strict=True)] for runs in chips.values()]
        for one_chip, other in combinations(best, 2):
            measured, predicted = (math.log(one_chip[side] / other[side]) for side in (0, 1))
            found[job[0] or ""].append(abs(predicted - measured))
    return found


def chip_pairs_toml(found: dict[str, list[float]], origin: str) -> str:
    """The preset: the median of the sources' medians."""
    error = math.expm1(statistics.median(statistics.median(of_source) for of_source in found.values()))
    return "\n".join([
        "# Written by benchmarks/chip_pairs.py: how far the ratio of two accelerators' step times is off.",
        'name = "chip_pairs"', f"ratio_error = {error:.2f}", f"pairs = {sum(map(len, found.values()))}",
        f"sources = {len(found)}", "", "[source]",
        f'ratio_error = "median of the median errors of sources: runs of {origin} that differ in the accelerator, the '
        'fastest of each job on each"',
        f"checked = {datetime.date.today().isoformat()}", "",
    ])  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, help="the preset to write")
    told = chip_pairs_toml(errors(validate_file(unseen_runs()).replays), unseen_runs().name)
    parser.parse_args().target.write_text(told, encoding="utf-8")
