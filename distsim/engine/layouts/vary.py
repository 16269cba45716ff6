"""``distsim search --vary``: how the best layout and its speed change with one field of the hardware or the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from distsim.engine.counted import Pool, Show
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.report import Choice, Request, SearchReport
from distsim.engine.layouts.search import search, usual_batch
from distsim.engine.layouts.variants import base_setup
from distsim.engine.networks.links import link_rate, network_for
from distsim.errors import DistsimError, did_you_mean
from distsim.specs.accelerator import PEAK_DTYPES
from distsim.units import parse

FEWEST, MOST = 5, 64
"""Values in a range: it doubles, or rises by the square root of two where that gives fewer; more are refused."""
EXTREME = 1000.0
"""A factor beyond this, or below its inverse, is a slip."""
FEW_TIMES = 10.0
"""Of a power limit a factor beyond this is a slip, for a number of watts."""


class Field(NamedTuple):
    """What may be varied: its unit, what it is now, and the specs in which it is a factor of that."""

    unit: str
    example: str
    usual: Callable[[Setup], float | None]
    scaled: Callable[[Setup, float], dict[str, Any]] | None = None
    whose: Callable[[Setup], int] = lambda setup: 0
    """How many GPUs a value is of all together; 0 where it is of none, or the field's name says that it is of one."""


def _peak(setup: Setup) -> float | None:
    peak = setup.accelerator.peak
    return peak.bf16 or peak.fp16 or peak.fp32


def _chip(setup: Setup, **update: Any) -> dict[str, Any]:
    return {"accelerator": setup.accelerator.model_copy(update=update)}


def _memory(setup: Setup, factor: float) -> dict[str, Any]:
    chip = setup.accelerator
    usable = chip.usable_memory
    return _chip(setup, memory=round(chip.memory * factor),
                 usable_memory=None if usable is None else round(usable * factor))  # fmt: skip


def _peaks(setup: Setup, factor: float) -> dict[str, Any]:
    peak = setup.accelerator.peak
    rates = {name: getattr(peak, name) for name in PEAK_DTYPES}
    return _chip(setup, peak=peak.model_copy(update={name: rate * factor for name, rate in rates.items() if rate}))


def _network(setup: Setup, **update: float | None) -> dict[str, Any]:
    network = setup.cluster.network
    assert network is not None
    return {"cluster": setup.cluster.model_copy(update={"network": network.model_copy(update=update)})}


def _network_rate(setup: Setup, factor: float) -> dict[str, Any]:
    network = setup.cluster.network
    assert network is not None
    rates = {"nic_rate": network.nic_rate, "node_rate": network.node_rate}
    return _network(setup, **{name: rate * factor for name, rate in rates.items() if rate is not None})


def _network_usual(setup: Setup) -> float | None:
    network = setup.cluster.network
    return None if network is None else network.node_bytes_per_second


def _fabric_usual(setup: Setup) -> float | None:
    return None if setup.cluster.fabric.kind == "none" else link_rate(setup.accelerator, setup.cluster)


def _fabric(setup: Setup, factor: float) -> dict[str, Any]:
    fabric = setup.cluster.fabric
    rates = {"rate": fabric.rate, "pair_rate": fabric.pair_rate}
    changed = fabric.model_copy(update={name: rate * factor for name, rate in rates.items() if rate is not None})
    return {"cluster": setup.cluster.model_copy(update={"fabric": changed})}


def _domain_usual(setup: Setup) -> float | None:
    cluster = setup.cluster
    return None if cluster.fabric.kind == "none" or cluster.network is None else cluster.domain


def _domain(setup: Setup, factor: float) -> dict[str, Any]:
    """Whole nodes that share one fabric, or smaller nodes; an accelerator's share of the NICs stays."""
    cluster, size = setup.cluster, round(setup.cluster.domain * factor)
    node = cluster.gpus_per_node
    if size <= node:
        smaller = cluster.adapted(gpus_per_node=size)
        return {"cluster": smaller.model_copy(update={"domain": size})}
    if size % node:
        raise DistsimError(
            f"--vary fabric.domain: {size} is not a whole number of nodes of {node} GPUs",
            f"write e.g. --vary fabric.domain {node}..{8 * node}",
        )
    return {"cluster": cluster.model_copy(update={"domain": size})}


def _hop(setup: Setup) -> float | None:
    if setup.cluster.network is None:
        return None
    return float(network_for(setup.accelerator, cluster=setup.cluster, profile=setup.job.profile).hop)


JOB_FIELDS = {"gpu.power": "gpu_power"}
"""Fields that a job states by another name."""
FIELDS: dict[str, Field] = {
    "gpu.memory": Field("B", "40GB..160GB or 0.5..2", lambda setup: setup.accelerator.memory, _memory),
    "gpu.bandwidth": Field(
        "B/s", "1TB/s..8TB/s or 0.5..4", lambda setup: setup.accelerator.bandwidth,
        lambda setup, factor: _chip(setup, bandwidth=setup.accelerator.bandwidth * factor),
    ),
    "gpu.peak": Field("FLOP/s", "500TFLOP/s..2PFLOP/s or 0.5..2", _peak, _peaks),
    "gpu.power": Field("W", "400W..700W or 0.5..1", lambda setup: setup.accelerator.power),
    "network.bandwidth": Field(
        "B/s", "100GB/s..800GB/s (of a node) or 0.5..4",
        _network_usual, _network_rate, lambda setup: setup.cluster.gpus_per_node,
    ),
    "network.latency": Field(
        "s", "2us..20us or 0.5..4", _hop, lambda setup, factor: _network(setup, hop=(_hop(setup) or 0.0) * factor)
    ),
    "fabric.bandwidth": Field("B/s", "225GB/s..1800GB/s or 0.5..4", _fabric_usual, _fabric, lambda setup: 1),
    "fabric.domain": Field("", "8..72", _domain_usual, _domain),
    "seq": Field("", "4096..65536", lambda setup: setup.layout.seq),
    "gpus": Field("", "64..1024", lambda setup: setup.layout.gpus),
}  # fmt: skip


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

    def to_dict(self) -> dict[str, Any]:
        """The value, the numbers of the search, and the best layout."""
        found = self.report
        return {
            "value": self.value, "factor": self.factor, "evaluated": found.evaluated if found else 0,
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
            "objective": self.request.objective, "points": [point.to_dict() for point in self.points],
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
    interrupted = False
    for value in values:
        point = _point(_varied(request, base, name, value, usual), value, value / usual, watch, pool)
        points.append(point)
        interrupted = point.report is not None and point.report.interrupted
        if interrupted:
            break
    found = [point.report for point in points if point.report is not None]
    if not found:
        raise DistsimError(points[0].problem, f"no value of {name} in {text} allows a layout")
    notes += [note for report in found for note in report.notes]
    return VaryReport(name, field.unit, request, base, tuple(points), tuple(dict.fromkeys(notes)), interrupted,
                      field.whose(base))  # fmt: skip


def _point(request: Request, value: float, factor: float, watch: Show | None, pool: Pool | None) -> Point:
    try:
        return Point(value, factor, search(request, watch, pool=pool, partly=True))
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


def field_of(name: str) -> Field:
    """The field of that name."""
    if name not in FIELDS:
        raise DistsimError(f"--vary {name}: no such field", did_you_mean(name, FIELDS), f"fields: {', '.join(FIELDS)}")
    return FIELDS[name]


def values_of(name: str, text: str, usual: float) -> list[float]:
    """The values that ``LOW..HIGH`` or ``A,B,C`` name; without a unit they are factors of what is usual."""
    field = FIELDS[name]
    low, dots, high = text.partition("..")
    parts = [part.strip() for part in ([low, high] if dots else text.split(","))]
    if not all(parts):
        raise DistsimError(f"--vary {name} {text!r} is not a range", f"write e.g. --vary {name} {field.example}")
    ends = [_value(name, field, part, usual) for part in parts]
    if not dots:
        return list(dict.fromkeys(ends))
    if ends[0] > ends[1]:
        raise DistsimError(f"--vary {name}: the range {text} is empty", f"write {high.strip()}..{low.strip()}")
    doublings = math.log2(ends[1] / ends[0])
    step = 1.0 if not field.unit or math.floor(doublings + 1e-9) + 1 >= FEWEST else 0.5
    count = math.floor(doublings / step + 1e-9) + 1
    if count > MOST:
        raise DistsimError(f"--vary {name} {text} has {count} values", f"valid: at most {MOST}")
    values = [ends[0] * 2 ** (step * index) for index in range(count)]
    if field.unit and values[-1] < ends[1] * (1 - 1e-6):
        values.append(ends[1])
    return values


def _value(name: str, field: Field, part: str, usual: float) -> float:
    if not field.unit:
        if not part.isdigit() or int(part) < 1:
            raise DistsimError(
                f"--vary {name}: {part!r} is not a whole number", f"write e.g. --vary {name} {field.example}"
            )
        return int(part)
    try:
        value = float(part.removesuffix("x").removesuffix("×")) * usual
        if field.unit == "W" and value > usual * FEW_TIMES:
            raise DistsimError(f"--vary {name}: {part} is {part} times {usual:,.0f} W", f"write e.g. {part}W for watts")
    except ValueError:
        try:
            value = parse(part, field.unit, f"--vary {name}")
        except DistsimError as problem:
            hint = f"write e.g. --vary {name} {field.example}; a number without a unit is a factor"
            raise DistsimError(problem.problem, hint) from None
    if not 1 / EXTREME <= value / usual <= EXTREME:
        times = f"{value / usual:,.0f}" if value > usual else f"{value / usual:.2g}"
        raise DistsimError(
            f"--vary {name}: {part} is {times} times what {name} is now",
            f"write e.g. --vary {name} {field.example}; a number without a unit is a factor",
        )
    return value
