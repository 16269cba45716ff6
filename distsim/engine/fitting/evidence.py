"""Turns the residuals of measured runs into the table that corrects jobs like them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from distsim.engine.corrections.likeness import DIFFERENCES, DOUBLINGS, NOISES, RANGE, Likeness, shared
from distsim.engine.corrections.own_runs import OWN, compared
from distsim.engine.fitting.states import shares_of, voted, votes_of
from distsim.engine.fitting.table import Example, in_state, nearest_states, repeats

HALF_BUSY, LEAST_BUSY = 0.5, 0.05
"""Share of a step in which a chip computes, of a run whose variance is one; and the least share that tells runs
apart. Assumed."""
LARGEST_ERROR = 0.35
"""An error beyond this is as bad as this when the noise of a framework is chosen."""
COLUMNS = ("run", "weight", "alone", "nearest", *DOUBLINGS, "year", *DIFFERENCES)
"""Of a table of evidence."""
STATE_COLUMNS = ("state", "alone_state", "fullness", "checked", "stalled")
"""A run's state, the one that all others give it, what votes weigh it by, its own two votes (see
engine/corrections/stalls.py)."""


class Placed(Protocol):
    """A run by what it is compared by."""

    @property
    def likeness(self) -> Likeness:
        """Its place among others."""

    @property
    def framework(self) -> str:
        """Its name."""


def kernel(one: Sequence[Placed], other: Sequence[Placed]) -> Any:
    """Likeness of every pair."""
    named = [[compared(e.likeness.names) for e in examples] for examples in (one, other)]
    a, b = (np.array([e.likeness.numbers for e in examples]) for examples in (one, other))
    squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    for place, far in enumerate(DIFFERENCES.values()):
        left, right = (np.array([names[place] for names in examples]) for examples in named)
        squared += far**2 * (left[:, None] != right[None, :])
    return np.exp(-np.sqrt(squared) / RANGE)


def related(near: Any, one: Sequence[Placed], other: Sequence[Placed]) -> Any:
    """Likeness of every pair as far as deviations go: a user's own runs share a part whatever they are."""
    left, right = (np.array([e.likeness.names[-1].startswith(OWN) for e in runs], float) for runs in (one, other))
    return shared(near, left[:, None] * right[None, :])


def restless(own: Sequence[Example]) -> Any:
    """Variance of each run over that of one whose chips compute half of the time: hosts and waits repeat worse."""
    return np.array([HALF_BUSY / max(e.busy_fraction, LEAST_BUSY) for e in own])


def solved(alike: Any, deviations: Any, spread: Any, same: Any) -> tuple[Any, Any]:
    """Weights of runs, and what all others say of each, at the noise at which the others say it best; ``spread`` is the
    variance of each beside others'. Repeats of a setting, pairs that are the ``same``, are no others."""
    found = []
    several = {tuple(np.flatnonzero(row)) for row in same if row.sum() > 1}
    heard = np.minimum(1 / spread, 1)
    for noise in NOISES:
        inverse = np.linalg.inv(alike + noise * np.diag(spread))
        weights = inverse @ deviations
        alone = deviations - weights / np.diag(inverse)
        for part in map(list, sorted(several)):
            alone[part] = deviations[part] - np.linalg.solve(inverse[np.ix_(part, part)], weights[part])
        errors = np.minimum(np.abs(np.exp(alone - deviations) - 1), LARGEST_ERROR)
        found.append((float((errors * heard).sum() / heard.sum()), noise, weights, alone))
    _, _, weights, alone = min(found, key=lambda one: one[:2])
    return weights, alone


def by_framework(examples: Sequence[Placed]) -> dict[str, list[int]]:
    """Positions of the examples of each framework."""
    found: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        found[example.framework].append(index)
    return dict(sorted(found.items()))


class LeftOut(NamedTuple):
    """How far predictions of runs are off that were left out of the fit, as logarithms."""

    residuals: Any
    """By the fit alone, in the state that other runs give to each run."""
    corrected: Any
    """The same after the correction that the others give."""
    nearest: Any
    """Likeness of the nearest other run, times how likely the state is."""


def corrected(examples: Sequence[Example], labels: Sequence[Any], residuals: dict[Any, Any]) -> LeftOut:
    """Runs left out by label; ``residuals`` are, per label, those of all examples and states from the fit that did not
    see the label."""
    found = LeftOut(*np.zeros((3, len(examples))))
    for positions in by_framework(examples).values():
        own = np.array(positions)
        for label in sorted({labels[i] for i in positions}):
            out = np.array([labels[i] == label for i in positions])
            new, known = own[out], own[~out]
            if not len(known):
                found.residuals[new] = found.corrected[new] = residuals[label][0, new]
                continue
            parts = _predicted([examples[i] for i in known], residuals[label][:, known],
                               [examples[i] for i in new], residuals[label][:, new])  # fmt: skip
            for whole, part in zip(found, parts, strict=True):
                whole[new] = part
    return found


def _predicted(known: Sequence[Example], known_residuals: Any, new: Sequence[Example], new_residuals: Any) -> LeftOut:
    """What known runs of one framework say of new ones."""
    states = nearest_states(known, known_residuals)
    theirs, sure = np.zeros(len(new), int), np.ones(len(new))
    if known[0].kin.several:
        theirs, sure = voted(known, shares_of(known, known_residuals), new)
    among = related(kernel(known, known), known, known) * (states[:, None] == states)
    weights, _ = solved(among, -in_state(known_residuals, states), restless(known), repeats(known))
    near, same = kernel(new, known), theirs[:, None] == states
    rest = in_state(new_residuals, theirs)
    return LeftOut(rest, rest + (related(near, new, known) * same) @ weights, (near * same).max(axis=1) * sure)


def write_evidence(folder: Path, examples: Sequence[Example], residuals: Any) -> None:
    """A table per framework, and no others: weight of each run, and what the rest say of it (Rasmussen and Williams,
    5.4.2)."""
    tables = {}
    for framework, positions in by_framework(examples).items():
        several = examples[positions[0]].kin.several
        lines = [",".join([*COLUMNS, *STATE_COLUMNS] if several else COLUMNS)]
        tables[framework] = [*lines, *_lines([examples[i] for i in positions], residuals[:, positions], several)]
    write_tables(folder, tables)


def write_tables(folder: Path, tables: Mapping[str, Sequence[str]]) -> None:
    """Lines of a table per framework into a folder that has no others afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        if old.stem not in tables:
            old.unlink()
    for framework, lines in tables.items():
        (folder / f"{framework}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def cells_of(run: str, weight: float, alone: float, nearest: float, likeness: Likeness) -> list[str]:
    """A line of such a table: a run's weight, what all others say of it, likeness of the nearest, and its own place."""
    said = [run, f"{weight:.4g}", f"{alone:.4g}", f"{max(nearest, 0):.3g}"]
    return [*said, *(f"{value:g}" for value in likeness.numbers), *likeness.names]


def _lines(runs: Sequence[Example], residuals: Any, several: bool) -> Iterator[str]:
    """The evidence of one framework's runs; the last columns where its software had several states."""
    states = nearest_states(runs, residuals)
    theirs, sure, votes = states, np.ones(len(runs)), np.zeros((len(runs), 2))
    if several:
        votes, theirs, sure = votes_of(runs, shares_of(runs, residuals))
    near, deviations = kernel(runs, runs), -in_state(residuals, states)
    among = related(near, runs, runs)
    weights, alone = solved(among * (states[:, None] == states), deviations, restless(runs), repeats(runs))
    elsewhere, others = theirs != states, (theirs[:, None] == states) & ~repeats(runs)
    alone = np.where(elsewhere, (among * others) @ weights, alone)
    nearest = (near * others).max(axis=1) * sure
    for i, e in enumerate(runs):
        cells = cells_of(e.id, weights[i], alone[i], nearest[i], e.likeness)
        if several:
            cells += [f"{states[i]}", f"{theirs[i]}", f"{e.fullness:.4g}", *(f"{vote:.4g}" for vote in votes[i])]
        yield ",".join(cells)
