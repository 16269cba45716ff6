"""Turns the residuals of measured runs into the table that corrects jobs like them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distsim.engine.calibrate import Example
from distsim.engine.likeness import DIFFERENCES, DOUBLINGS, NOISES, RANGE

LARGEST_ERROR = 0.35
"""An error beyond this is as bad as this when the noise of a framework is chosen."""


def kernel(one: Sequence[Example], other: Sequence[Example]) -> Any:
    """Likeness of every pair."""
    a, b = (np.array([e.likeness.numbers for e in examples]) for examples in (one, other))
    squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    for place, far in enumerate(DIFFERENCES.values()):
        left, right = (np.array([e.likeness.names[place] for e in examples]) for examples in (one, other))
        squared += far**2 * (left[:, None] != right[None, :])
    return np.exp(-np.sqrt(squared) / RANGE)


def solved(alike: Any, deviations: Any) -> tuple[Any, Any]:
    """Weights of runs, and what all others say of each, at the noise at which the others say it best."""
    found = []
    for noise in NOISES:
        inverse = np.linalg.inv(alike + noise * np.eye(len(alike)))
        weights = inverse @ deviations
        alone = deviations - weights / np.diag(inverse)
        errors = np.minimum(np.abs(np.exp(alone - deviations) - 1), LARGEST_ERROR)
        found.append((float(errors.mean()), noise, weights, alone))
    _, _, weights, alone = min(found, key=lambda one: one[:2])
    return weights, alone


def by_framework(examples: Sequence[Example]) -> dict[str, list[int]]:
    """Positions of the examples of each framework."""
    found: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        found[example.framework].append(index)
    return dict(sorted(found.items()))


def corrected(examples: Sequence[Example], labels: Sequence[Any], residuals: dict[Any, Any]) -> tuple[Any, Any]:
    """Residuals of runs left out (by label) after the correction that the others give, and likeness of the nearest.

    ``residuals`` are, per label, those of all examples from the fit that did not see the label.
    """
    rest = np.array([residuals[label][index] for index, label in enumerate(labels)])
    nearest = np.zeros(len(examples))
    for positions in by_framework(examples).values():
        own = np.array(positions)
        for label in sorted({labels[i] for i in positions}):
            out = np.array([labels[i] == label for i in positions])
            if out.all():
                continue
            known, new = [examples[i] for i in own[~out]], [examples[i] for i in own[out]]
            weights, _ = solved(kernel(known, known), -residuals[label][own[~out]])
            alike = kernel(new, known)
            rest[own[out]] += alike @ weights
            nearest[own[out]] = alike.max(axis=1)
    return rest, nearest


def write_evidence(folder: Path, examples: Sequence[Example], residuals: Any) -> None:
    """A table per framework: weight of each run, and what the others say of it (Rasmussen and Williams, 5.4.2)."""
    folder.mkdir(parents=True, exist_ok=True)
    frameworks = by_framework(examples)
    for old in folder.glob("*.csv"):
        if old.stem not in frameworks:
            old.unlink()
    head = ["run", "weight", "alone", "nearest", *DOUBLINGS, "year", *DIFFERENCES]
    for framework, positions in frameworks.items():
        own = [examples[i] for i in positions]
        deviations = -residuals[np.array(positions)]
        alike = kernel(own, own)
        weights, alone = solved(alike, deviations)
        nearest = (alike - np.eye(len(own))).max(axis=1)
        lines = [",".join(head)]
        for e, weight, other, near in zip(own, weights, alone, nearest, strict=True):
            numbers = [f"{value:g}" for value in e.likeness.numbers]
            lines.append(
                ",".join([e.id, f"{weight:.4g}", f"{other:.4g}", f"{max(near, 0):.3g}", *numbers, *e.likeness.names])
            )
        (folder / f"{framework}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
