"""How far measured peaks of memory are from predicted ones, as what runs of a source say of further ones of theirs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distsim.engine.corrections.likeness import Likeness, likeness_of
from distsim.engine.corrections.own_runs import OWN
from distsim.engine.evidence import Replay
from distsim.engine.fitting.evidence import COLUMNS, by_framework, cells_of, kernel, related, solved, write_tables
from distsim.engine.jobs.kin import kin_of
from distsim.engine.runs.years import run_year


class Peak(NamedTuple):
    """A run whose peak was measured."""

    id: str
    framework: str
    likeness: Likeness
    logarithm: float
    """Of what was predicted over what was measured."""


def peaks_of(replays: Iterable[Replay], own: frozenset[str] = frozenset()) -> list[Peak]:
    """The peaks among replays; of ``own`` sources as the user's."""
    found = []
    for one in replays:
        if one.reason or one.setup is None or not one.measured_peak or not one.predicted_peak:
            continue
        whose = OWN + one.run.source if one.run.source in own else one.run.source
        place = likeness_of(one.setup, run_year(one.run), whose)
        ratio = one.predicted_peak / one.measured_peak
        found.append(Peak(one.run.id, kin_of(one.setup.framework, one.setup.compiled).name, place, math.log(ratio)))
    return found


def write_peaks(folder: Path, peaks: Sequence[Peak]) -> None:
    """A table per framework, and no others: what each run says of others' peaks, and others of its own."""
    tables = {}
    for framework, positions in by_framework(peaks).items():
        tables[framework] = [",".join(COLUMNS), *_lines([peaks[i] for i in positions])]
    write_tables(folder, tables)


def _lines(own: Sequence[Peak]) -> list[str]:
    near, apart = kernel(own, own), np.eye(len(own), dtype=bool)
    weights, alone = solved(related(near, own, own), -np.array([e.logarithm for e in own]), np.ones(len(own)), apart)
    nearest = (near * ~apart).max(axis=1)
    return [",".join(cells_of(e.id, weights[i], alone[i], nearest[i], e.likeness)) for i, e in enumerate(own)]
