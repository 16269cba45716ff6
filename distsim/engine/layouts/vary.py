"""``distsim search --vary``: how the best layout and its speed change with one field of the hardware or the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distsim.engine.counted import Pool, Show
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.choice import Choice
from distsim.engine.layouts.fold import Shared
from distsim.engine.layouts.report import Request, SearchReport
from distsim.engine.layouts.search import search, usual_batch
from distsim.engine.layouts.variants import base_setup
from distsim.engine.layouts.varied import FIELDS, JOB_FIELDS, field_of, values_of
from distsim.errors import DistsimError

NOT_COMPUTED = ("gpu.memory", "network.bandwidth", "network.latency")
"""Fields that change neither computation nor bytes of a layout, which are then computed once for all values."""
MOST_SHARED = 15_000_000
"""Layouts of a search whose computation and bytes are kept: 12 million of DeepSeek-V3's take 1 GB. Assumed."""


@dataclass(frozen=True)
class Point:
    """One value of the field and the search with it."""

    value: float
    factor: float
    """The value over what it is without ``--vary``."""
    report: SearchReport | None
    problem: str = ""
    """Why there is no layout at all."""

    @property
    def best(self) -> Choice | None:
        """The best layout, where one is feasible."""
        return self.report.best[0] if self.report is not None and self.report.best else None

    def to_dict(self, unit: str = "") -> dict[str, Any]:
        """The value in its ``unit``, of which bytes are whole, the numbers of the search, and the best layout."""
        found, value = self.report, round(self.value) if unit == "B" else self.value
        return {
            "value": value, "factor": self.factor, "evaluated": found.evaluated if found else 0,
            "feasible": found.feasible if found else 0, "global_batch": found.global_batch if found else None,
            "best": found.told(self.best) if found and self.best else None, "problem": self.problem,
        }  # fmt: skip


@dataclass(frozen=True)
class VaryReport:
    """The answer of ``distsim search --vary``, smallest value first unless they were listed otherwise."""

    field: str
    unit: str
    request: Request
    base: Setup
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    interrupted: bool = False
    per_gpus: int = 0
    """How many GPUs a value is of all together; 0 where that is not to be told."""

    def to_dict(self) -> dict[str, Any]:
        """Values in bytes, bytes per second, FLOP per second, seconds, tokens or GPUs."""
        return {
            "schema": "distsim.search-vary/1", "field": self.field, "unit": self.unit,
            "per_gpus": self.per_gpus or None,
            "objective": self.request.objective, "points": [point.to_dict(self.unit) for point in self.points],
            "interrupted": self.interrupted, "notes": list(self.notes),
        }  # fmt: skip


def vary(request: Request, name: str, text: str, watch: Show | None = None, pool: Pool | None = None) -> VaryReport:
    """Search once for each value of a field; a value that leaves no layout is reported, not raised. An interrupt ends
    it with what it has."""
    field = field_of(name)
    base = base_setup(request.job, max(request.gpus))
    usual = field.usual(base)
    if not usual:
        raise DistsimError(f"--vary {name}: {base.cluster.name} with {base.accelerator.name} gives no value for it",
                           f"vary one of: {', '.join(one for one in FIELDS if FIELDS[one].usual(base))}")  # fmt: skip
    values = values_of(name, text, usual)
    notes: list[str] = []
    if name == "gpus" and request.job.global_batch is None:  # one batch for all, or their steps could not be compared
        batch = usual_batch(base, [int(value) for value in values], notes)
        request = replace(request, job=request.job.model_copy(update={"global_batch": batch}))
    points: list[Point] = []
    interrupted, shared = False, None
    for value in values:
        point = _point(_varied(request, base, name, value, usual), value, value / usual, watch, pool, shared)
        points.append(point)
        few = point.report is not None and point.report.evaluated <= MOST_SHARED
        if shared is None and few and name in NOT_COMPUTED:
            shared = Shared()
        interrupted = point.report is not None and point.report.interrupted
        if interrupted:
            break
    found = [point.report for point in points if point.report is not None]
    if not found:
        raise DistsimError(points[0].problem, f"no value of {name} in {text} allows a layout")
    notes += [note for report in found for note in report.notes]
    return VaryReport(name, field.unit, request, base, tuple(points), tuple(dict.fromkeys(notes)), interrupted,
                      field.whose(base))  # fmt: skip


def _point(
    request: Request, value: float, factor: float, watch: Show | None, pool: Pool | None, shared: Shared | None
) -> Point:
    try:
        return Point(value, factor, search(request, watch, pool=pool, shared=shared, partly=True))
    except DistsimError as problem:
        return Point(value, factor, None, problem.problem)


def _varied(request: Request, base: Setup, name: str, value: float, usual: float) -> Request:
    scaled = FIELDS[name].scaled
    if name == "gpus":
        return replace(request, gpus=(int(value),))
    if scaled is None:
        stated = {JOB_FIELDS.get(name, name): value if FIELDS[name].unit else int(value)}
        return replace(request, job=request.job.model_copy(update=stated))
    # what the job names is given by its loaded specs, of which one is changed
    specs: Mapping[str, Any] = {"accelerator": base.accelerator, "cluster": base.cluster}
    return replace(request, overrides={**specs, **scaled(base, value / usual)})
