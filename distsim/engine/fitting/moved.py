"""How far a step is off that differs from all runs of its source: what is left of jobs unlike a user's own runs.

Sources that nothing is fitted to are each fitted alone, as ``distsim calibrate --alone`` fits a user's runs, with the
runs of one value of one setting left out at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from distsim.engine.corrections.correction import Correction
from distsim.engine.corrections.likeness import DIFFERENCES, DOUBLINGS
from distsim.engine.fitting.evidence import corrected
from distsim.engine.fitting.fit import fit
from distsim.engine.fitting.table import Example, Table, as_own
from distsim.engine.fitting.write import left_out
from distsim.engine.steps.intervals import FEW_MOVED, moved_name

SETTINGS = ("gpus", "tp", "recompute", "zero", "model")
"""What runs are left out by the values of."""
LEAST_RUNS, MOST_RUNS = 16, 60
"""Of a source that tells something, and of a large one that are taken, evenly spread over it."""


def moved_groups(examples: Sequence[Example]) -> dict[str, list[tuple[str, float]]]:
    """(source, residual) of runs of each source whose setting none of the others has, by how near the nearest is."""
    sources: dict[tuple[str, str], list[Example]] = defaultdict(list)
    for example in examples:
        sources[example.source, example.framework].append(example)
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for runs in (some for some in sources.values() if len(some) >= LEAST_RUNS):
        for name, residual in _of_source(runs[:: -(-len(runs) // MOST_RUNS)]):
            found[name].append((runs[0].source, residual))
    return dict(found)


def _of_source(runs: Sequence[Example]) -> list[tuple[str, float]]:
    """(group, residual) of the runs of one source, once per setting in which they differ."""
    table, own = Table.of(list(runs)), [as_own(one) for one in runs]
    whole, found = fit(table), []
    for setting in SETTINGS:
        labels = [_value(one, setting) for one in runs]
        if len(set(labels)) == 1:
            continue
        near = corrected(own, labels, left_out(table, labels, whole, None))
        for index, label in enumerate(labels):
            if len(labels) - labels.count(label) >= FEW_MOVED:
                word = Correction(0.0, float(near.nearest[index]), ()).word
                found.append((moved_name(word), float(near.corrected[index])))
    return found


def _value(example: Example, setting: str) -> str:
    """A run's value of a setting."""
    if setting in DOUBLINGS:
        return str(example.likeness.numbers[list(DOUBLINGS).index(setting)])
    return example.likeness.names[list(DIFFERENCES).index(setting)]
