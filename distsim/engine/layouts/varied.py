"""What ``distsim search --vary`` takes: fields of the hardware or the job, and their values as users write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from distsim.engine.jobs.resolve import Setup
from distsim.engine.networks.links import link_rate, network_for
from distsim.errors import DistsimError, did_you_mean
from distsim.specs.accelerator import PEAK_DTYPES
from distsim.specs.limits import RANGES
from distsim.specs.quantity import bits_told
from distsim.units import decimal_bytes, duration, gib, in_bits, parse

FEWEST, MOST = 5, 64
"""Values in a range: it doubles, or rises by the square root of two where that gives fewer; more are refused."""
EXTREME = 1000.0
"""A factor beyond this, or below its inverse, is a slip."""
FEW_TIMES = 10.0
"""A bare number beyond this is a slip, for one with a unit: no maker's next chip has ten times of anything. Whoever
means a factor writes ``40x``."""
UNITS = {dimension: (*range_.units, dimension) for dimension, range_ in RANGES.items()} | {"s": ("s", "ms", "us")}
"""In which a number without one may be meant."""
IN_BYTES = ("gpu.memory", "gpu.bandwidth")
"""What nobody states in bits."""


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


def field_of(name: str) -> Field:
    """The field of that name."""
    if name not in FIELDS:
        raise DistsimError(f"--vary {name}: no such field", did_you_mean(name, FIELDS), f"fields: {', '.join(FIELDS)}")
    return FIELDS[name]


def values_of(name: str, text: str, usual: float) -> list[float]:
    """The values that ``LOW..HIGH``, its end included, or ``A,B,C`` name; without a unit they are factors of what is
    usual."""
    field = FIELDS[name]
    low, dots, high = text.partition("..")
    parts = [part.strip() for part in ([low, high] if dots else text.split(","))]
    if not all(parts):
        raise DistsimError(f"--vary {name} {text!r} is not a range", f"write e.g. --vary {name} {field.example}")
    _refuse_bare(name, field, parts, usual, dots or ",")
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
    if values[-1] < ends[1] * (1 - 1e-6):
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
    except ValueError:
        value = _with_unit(name, field, part)
    if not 1 / EXTREME <= value / usual <= EXTREME:
        times = f"{value / usual:,.0f}" if value > usual else f"{value / usual:.2g}"
        raise DistsimError(
            f"--vary {name}: {part} is {times} times what {name} is now",
            f"write e.g. --vary {name} {field.example}; a number without a unit is a factor",
        )
    return value


def _with_unit(name: str, field: Field, part: str) -> float:
    try:
        value = parse(part, field.unit, f"--vary {name}")
    except DistsimError as problem:
        hint = f"write e.g. --vary {name} {field.example}; a number without a unit is a factor"
        raise DistsimError(problem.problem, hint) from None
    if name in IN_BYTES and in_bits(part):
        raise DistsimError(*bits_told(f"--vary {name}", part).split("; "))
    return value


def _refuse_bare(name: str, field: Field, parts: list[str], usual: float, between: str) -> None:
    """Raise for a factor that nobody means of a quantity: a number whose unit was left out."""
    for part in parts if field.unit else ():
        try:
            factor = float(part.removesuffix("x") if field.unit == "W" else part)
        except ValueError:  # it has a unit, or says that it is a factor
            continue
        if not FEW_TIMES < factor <= EXTREME:
            continue
        unit = min(UNITS[field.unit], key=lambda one: abs(math.log(parse(f"1{one}", field.unit) * factor / usual)))
        stated, factors = (between.join(one + end if _bare(one) else one for one in parts) for end in (unit, "x"))
        otherwise = "" if field.unit == "W" else f", or {factors} if that is meant"  # no chip has ten times the power
        raise DistsimError(
            f"--vary {name}: {part} is {factor:g} times {_told(usual, field.unit)}",
            f"a number without a unit is a factor: write {stated}{otherwise}",
        )


def _bare(part: str) -> bool:
    return part.replace(".", "", 1).isdigit()


def _told(usual: float, unit: str) -> str:
    """What a field is now, as people say it."""
    if unit in ("B", "s"):
        return gib(usual) if unit == "B" else duration(usual)
    return decimal_bytes(usual, unit)
