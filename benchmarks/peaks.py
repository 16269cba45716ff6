"""Writes how far predicted peaks of memory are off: ``make calibrate`` runs it on the shipped runs.

Nothing of memory is fitted to these runs, so none has to be left out; nor does one correct another here.
"""

from __future__ import annotations

import argparse
import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from distsim.engine.calibrated import PEAKS
from distsim.engine.evidence import Replay
from distsim.engine.fitting.others import strange_replays
from distsim.engine.fitting.write import as_shipped, weighted_quantile
from distsim.engine.footprint.peak_error import QUANTILES, TABLE
from distsim.engine.runs.profile import assumed_profile
from distsim.interop.runs import read_runs


def comparable(replay: Replay) -> bool:
    """Whether a run's peak says something of a job, all of whose options are known: its software has a profile, and its
    cells say what is recomputed."""
    said = replay.run.text("recompute") is not None and not assumed_profile(replay.run)
    return not replay.reason and replay.memory_error is not None and said


def peaks_toml(replays: Sequence[Replay], origin: str) -> str:
    """The preset: quantiles of measured over predicted peaks, each source weighing alike."""
    used = [one for one in replays if comparable(one)]
    count = Counter(one.run.source for one in used)
    ratios = np.array([1 / (1 + (one.memory_error or 0.0)) for one in used])
    weights = np.array([1 / count[one.run.source] for one in used])
    at = [weighted_quantile(ratios, weights, step / QUANTILES) for step in range(QUANTILES + 1)]
    return "\n".join([
        "# Written by make calibrate: measured over predicted peaks of memory at every 5% of runs, sources alike.",
        f'name = "{PEAKS}"', "", f"[{TABLE}]", f"runs = {len(used)}", f"sources = {len(count)}",
        f"at = [{', '.join(f'{value:.4g}' for value in at)}]", "",
        "[source]", f'all = "replays of {origin} whose cells say what is recomputed"',
        f"checked = {datetime.date.today().isoformat()}", "",
    ])  # fmt: skip


def main(target: Path, tables: Sequence[Path]) -> None:
    """Replay tables of runs and write the preset."""
    replays = [replay for table in tables for replay in strange_replays(read_runs(table))]
    text = as_shipped(PEAKS, peaks_toml(replays, " and ".join(table.name for table in tables)))
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, help="the preset to write")
    parser.add_argument("tables", type=Path, nargs="+", help="CSV tables of measured runs")
    asked = parser.parse_args()
    main(asked.target, asked.tables)
