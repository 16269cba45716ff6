"""Cross-validation of the fit, and the presets it writes (byte for byte the same on every run: what says the same
as the shipped preset keeps its day)."""

from __future__ import annotations

import datetime
import json
import re
import tempfile
import tomllib
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distsim import catalog
from distsim.engine.calibrated import HALF, LEVEL
from distsim.engine.corrections.correction import Correction
from distsim.engine.counted import Show, counted
from distsim.engine.evidence import quantile
from distsim.engine.fitting.fit import Fit, fit, unfitted
from distsim.engine.fitting.table import Example, Table, setting_counts
from distsim.engine.jobs.kin import kin_of
from distsim.engine.steps.intervals import (
    ELSEWHERE,
    FEW_SOURCES,
    MOVED,
    OWN_COUNTS,
    PACES,
    RESIDUALS,
    elsewhere_names,
    group_names,
    pace_name,
)
from distsim.errors import DistsimError
from distsim.specs.timing import NAMES, Timing

Groups = Mapping[str, Sequence[tuple[str, float]]]
"""(source, residual) of runs by the name of their group."""
Near = tuple[Any, Any]
"""Of runs left out one fifth at a time, residuals and likeness of the nearest run."""
Priors = dict[str, dict[str, float]]
"""By framework."""
FOLDS = 5
"""Parts of the runs that are left out in turn to tell how good a fit is; the usual number."""
SMALLEST = 0.005
"""Factors nearer to 1 than this are left out of the preset."""
DAY_LINE = re.compile(r"(?m)^checked = .*$")
LEAST_SPREAD = 0.01
"""Logarithm of a step time by which an interval reaches at least to either side: runs repeat no better than that."""


class Score(NamedTuple):
    """Absolute errors of predicted step time."""

    runs: int
    median: float
    p90: float
    source_mean: float
    """Mean over sources of each source's median."""


def score(examples: Sequence[Example], residuals: Any) -> Score:
    """Summed up as the field reports predictors."""
    errors = np.abs(np.exp(residuals) - 1)
    groups: dict[str, list[float]] = defaultdict(list)
    for example, error in zip(examples, errors, strict=True):
        groups[example.source].append(float(error))
    means = float(np.mean([np.median(group) for group in groups.values()]))
    return Score(len(errors), float(np.median(errors)), quantile(errors.tolist(), LEVEL), means)


def left_out(table: Table, labels: Sequence[Any], start: Fit, show: Show | None = None) -> dict[Any, Any]:
    """Per label, the residuals of all examples in all states from a fit that saw none with that label; from the priors
    where no other examples are left."""
    found: dict[Any, Any] = {}
    for label in counted(sorted(set(labels)), show):
        out = np.array([one == label for one in labels])
        found[label] = (unfitted(start.factors) if out.all() else fit(table.subset(~out), start)).residuals(table)
    return found


def folds(examples: Sequence[Example]) -> list[int]:
    """A fold per run that depends on nothing but its name, or for repeats of a user's setting on that of the first."""
    first: dict[int | None, str] = {}
    names = [one.id if one.setting is None else first.setdefault(one.setting, one.id) for one in examples]
    return [zlib.crc32(name.encode()) % FOLDS for name in names]


def priors_of(examples: Sequence[Example]) -> Priors:
    """The numbers that fitting starts from where a framework's preset states them: of every preset that stands for
    itself, and of those whose runs are fitted to."""
    known = [kin_of(catalog.load("frameworks", name)) for name in catalog.names("frameworks")]
    kins = [*(kin for kin in known if kin.like == kin.name), *(example.kin for example in examples)]
    return {kin.name: dict(kin.prior) for kin in kins if kin.prior}


def _number(value: float) -> str:
    return f"{value:.4g}"


def fitted_toml(model: Fit, priors: Priors, runs: str, count: int, sources: int) -> str:
    """The preset of fitted numbers, with what of the ``priors`` is a framework's own."""
    values: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    for (level, label, name), logarithm in zip(model.factors.keys, model.vector, strict=True):
        values[level, label][name] = float(np.exp(logarithm))
    general = values[0, ""]
    lines = [
        "# Written by distsim calibrate (make calibrate). Numbers: distsim/specs/timing.py says what each means;",
        "# [general] holds values, all other tables factors on them (``set``: values instead of the general ones).",
        'name = "fitted"', "", "[general]",
    ]  # fmt: skip
    defaults = {name: float(Timing.model_fields[name].default) for name in NAMES}
    lines += [f"{name} = {_number(general.get(name, 1.0) * value)}" for name, value in defaults.items()]
    for head, factors in _tables(values):
        kept = {name: value for name, value in factors.items() if abs(np.log(value)) >= SMALLEST}
        if kept:
            lines += ["", f"[{head}]", *(f"{name} = {_number(value)}" for name, value in kept.items())]
    for framework, fixed in sorted(priors.items()):
        lines += [
            "",
            f"[framework.{framework}.set]",
            *(f"{name} = {_number(value * general.get(name, 1.0))}" for name, value in fixed.items()),
        ]
    told = f"fitted by distsim calibrate to {count} measured runs of {sources} sources ({runs})"
    lines += ["", "[source]", f'other = "{told}"', _checked(), ""]
    return "\n".join(lines)


def _checked() -> str:
    return f"checked = {datetime.date.today().isoformat()}"


def _tables(values: dict[tuple[int, str], dict[str, float]]) -> Iterator[tuple[str, dict[str, float]]]:
    for (level, label), factors in sorted(values.items()):
        if level == 1:
            yield f"architecture.{label}", factors
        elif level == 2:
            yield f"family.{label}", factors
        elif level == 3:
            yield f"framework.{label}", factors
        elif level == 4:
            framework, architecture = label.split("|")
            yield f"framework.{framework}.on.{architecture}", factors


def residuals_toml(
    examples: Sequence[Example], near: Near, far: Any, plain: Any, unseen: Sequence[tuple[Example, float]],
    moved: Groups | None, others: tuple[Sequence[Example], Near] | None,
) -> str:  # fmt: skip
    """The preset of residuals by group: ``near`` from runs left out, ``far`` from whole sources left out, which stands
    for jobs of no known source; of these only runs in the ``plain`` state of their software, as jobs are; runs of
    ``unseen`` sources with their residuals; those of sources whose other runs differ (engine/fitting/moved.py), the
    shipped ones where None were ``moved``; and ``others`` that nothing is fitted to, left out."""
    outside = [(example, float(far[index])) for index, example in enumerate(examples) if plain[index]]
    fitted = {example.chip for example in examples}
    alone = len({example.source for example in examples}) < FEW_SOURCES
    groups_elsewhere = {} if alone else _elsewhere([*outside, *unseen], fitted)
    lines = [
        "# Written by distsim calibrate (make calibrate): how far predictions of runs left out of the fit were off.",
        "# over, under: 90% of the runs' times lie between predicted * exp(-over) and predicted * exp(under);",
        "# half_over, half_under: half of them, between their quartiles.",
        'name = "residuals"',
        *("", "[architectures]", f"fitted = {json.dumps(sorted(fitted))}"),
    ]
    if own := setting_counts(examples):
        lines += ["", f"[{OWN_COUNTS}]", *(f"{json.dumps(name)} = {count}" for name, count in sorted(own.items()))]
    lines += _near_groups(examples, near, fitted=True)
    lines += _near_groups(*others, fitted=False) if others else []
    for name, pairs in sorted({**groups_elsewhere, **(moved or {})}.items()):
        sources, residuals = zip(*pairs, strict=True)
        lines += ["", f'[groups."{name}"]', f"runs = {len(pairs)}", f"sources = {len(set(sources))}"]
        lines += _bounds(np.array(residuals), sources)
    lines += _shipped_groups(ELSEWHERE) if alone else []
    lines += _shipped_groups(MOVED) if moved is None else []
    told = "cross-validation of presets/timing/fitted.toml: runs, or whole sources, left out"
    lines += ["", "[source]", f'other = "{told}"', _checked(), ""]
    return "\n".join(lines)


def _near_groups(examples: Sequence[Example], near: Near, fitted: bool) -> Iterator[str]:
    """Groups of runs whose sources have others, by how near the nearest of these is."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        word = Correction(0.0, float(near[1][index]), ()).word
        for name in group_names(example.kin, example.architecture, word, fitted):
            groups[name].append(index)
    for name in sorted(groups):
        here = groups[name]
        settings = [-1 - i if (number := examples[i].setting) is None else number for i in here]
        yield from ("", f'[groups."{name}"]', f"runs = {len(set(settings))}")
        yield from _bounds(near[0][here], settings=settings)


def _shipped_groups(kind: str) -> list[str]:
    """Groups of a kind as the shipped residuals have them: runs of few sources tell of no other's."""
    with (catalog.shipped_folder() / "timing" / f"{RESIDUALS}.toml").open("rb") as file:
        groups = tomllib.load(file)["groups"]
    lines = []
    for name in sorted(name for name in groups if name.startswith(kind)):
        own = [f"{key} = {_number(value)}" for key, value in groups[name].items()]
        lines += ["", f'[groups."{name}"]', *own]
    return lines


def _elsewhere(found: Sequence[tuple[Example, float]], fitted: set[str]) -> dict[str, list[tuple[str, float]]]:
    """(source, residual) by pace, and once more of runs on architectures that something is ``fitted`` to, which are
    known better, and of each family of frameworks there. Where no run has a pace, all runs stand for it."""
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for example, residual in found:
        pace = pace_name(example.busy_fraction / float(np.exp(residual)))
        for name in elsewhere_names(pace, example.kin.family, example.chip in fitted):
            groups[name].append((example.source, residual))
    every = [elsewhere_names(pace, "", fitted=False)[0] for pace in PACES]
    everything = [pair for name in every for pair in groups[name]]
    return {name: groups[name] or everything for name in {*every, *groups}}


def _bounds(residuals: Any, sources: Sequence[str] = (), settings: Sequence[int] = ()) -> list[str]:
    over, under = spread(residuals, sources, settings)
    half_over, half_under = quantiles(residuals, sources, HALF, settings)
    found = {"over": over, "under": under, "half_over": min(half_over, over), "half_under": min(half_under, under)}
    return [f"{name} = {_number(value)}" for name, value in found.items()]


def spread(residuals: Any, sources: Sequence[str] = (), settings: Sequence[int] = ()) -> tuple[float, float]:
    """Conformal bounds below and above that nothing is so sure as to be without."""
    over, under = quantiles(residuals, sources, LEVEL, settings)
    return max(over, LEAST_SPREAD), max(under, LEAST_SPREAD)


def quantiles(
    residuals: Any, sources: Sequence[str], level: float, settings: Sequence[int] = ()
) -> tuple[float, float]:
    """Conformal bounds below and above: the quantile of a finite sample, each side with half of what may miss. Where
    runs have ``sources``, each source weighs alike, and their distributions are pooled; where they have ``settings``,
    each of these weighs alike, and the sample is as large as they are many."""
    whose: Sequence[object] = sources or settings or range(len(residuals))
    count = Counter(whose)
    weights = np.array([1 / count[name] for name in whose])
    many, finite = (len(residuals), 0) if sources else (len(count), 1)
    share = min(1.0, (many + finite) * (1 + level) / 2 / many)
    return weighted_quantile(residuals, weights, share), weighted_quantile(-residuals, weights, share)


def weighted_quantile(values: Any, weights: Any, share: float) -> float:
    """The smallest value that at least a ``share`` of the weights does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) >= share * weights.sum() * (1 - 1e-12)
    return float(values[order][reached.argmax() if reached.any() else -1])


def refuse_unwritable(folder: Path) -> None:
    """Raise where presets could not be written, before minutes are spent on them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DistsimError(f"cannot write here: {error.strerror}", "name a --folder", where=str(folder)) from None


def write(folder: Path, fitted: str, residuals: str) -> None:
    """Both presets into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("fitted", fitted), ("residuals", residuals)):
        (folder / f"{name}.toml").write_text(as_shipped(name, text), encoding="utf-8")


def as_shipped(name: str, text: str) -> str:
    """A preset with the day of the shipped one where nothing else differs."""
    if name not in catalog.names("timing"):
        return text
    shipped = catalog.path("timing", name).read_text(encoding="utf-8")
    return shipped if DAY_LINE.sub("", shipped) == DAY_LINE.sub("", text) else text
