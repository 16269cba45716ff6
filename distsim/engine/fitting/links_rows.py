"""Measured collectives as the fit of links wants them: read from CSV, grouped by shape, candidates priced once."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from distsim.engine.collective import group_on
from distsim.engine.fitting.links_timing import Timing, timing_of
from distsim.engine.networks import nccl
from distsim.engine.networks.link_factors import FAMILIES
from distsim.engine.networks.network import NVLS_GENERATION, Group
from distsim.engine.networks.pricing import op_named
from distsim.errors import DistsimError
from distsim.plain_files import text_of
from distsim.units import MICROSECOND

LATENCY_BYTES = 4 << 20  # a class without rows below this size tells nothing of latency
COLUMNS = (
    "run",
    "op",
    "gpu",
    "gpus",
    "gpus_per_node",
    "internode_gbps_per_gpu",
    "network",
    "bytes",
    "time_us",
    "source",
)


class Measurement(NamedTuple):
    """One measured collective with default settings."""

    source: str
    op: str
    gpu: str
    ranks: int
    ranks_per_node: int | None
    """None: those of the usual node, or the cluster's."""
    gbps: float | None
    size_bytes: int
    seconds: float
    publication: str = ""
    network: str | None = None
    """Class of network where the source states it; the usual one for GPU and rate elsewhere."""
    timed_by: str = ""
    """What timed it, as ``presets/links/timers.toml`` names it; blank: calls behind each other, as nccl-tests does."""
    processes: str = ""
    """``one`` where one process drives all GPUs of a node, ``each`` where each has its own; blank: not known."""


def read(path: str) -> list[Measurement]:
    """Rows of a file such as the shipped ``presets/runs/collectives.csv``."""
    found = []
    try:
        reader = csv.DictReader(io.StringIO(text_of(path, newline=""), newline=""))
        if lacking := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            needed = f"needed: {', '.join(COLUMNS)}"
            raise DistsimError(f"columns {', '.join(lacking)} are missing", needed, where=path)
        for number, row in enumerate(reader, 2):
            found.append(_measurement(row, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise DistsimError(f"cannot read {path}: {error}", "give a CSV of measured collectives") from None
    return found


def _measurement(row: dict[str, str], where: str) -> Measurement:
    try:
        return Measurement(
            row["run"], op_named(row["op"]), row["gpu"], int(row["gpus"]), int(row["gpus_per_node"]),
            float(row["internode_gbps_per_gpu"]) if row["internode_gbps_per_gpu"] else None, int(row["bytes"]),
            float(row["time_us"]) * MICROSECOND, row["source"],
            row["network"] or None, row.get("timed_by") or "", row.get("processes") or "",
        )  # fmt: skip
    except ValueError as error:
        raise DistsimError(f"not a number: {error}", where=where) from None


class Batch(NamedTuple):
    """Rows of one source, op and shape, with the terms of every candidate at factor one."""

    key: str
    """``link/family`` of the slowest link, whose factors the rows tell about."""
    inside_key: str
    source: str
    rows: tuple[Measurement, ...]
    terms: tuple[Any, ...]
    """(long protocol?, latency, seconds over fabric, over NICs, at the protocol's cap), candidates by rows."""
    measured: Any
    rings_only: bool = False
    """Nothing but rings and trees of them inside a domain: the chip has no reduction in its switch."""
    floor: float = 0.0
    """Seconds that one process takes to launch on its GPUs, where that may hide what a short message takes."""


def batches(rows: Iterable[Measurement], cluster: Any = None) -> list[Batch]:
    """Rows grouped so that each group is priced in one go; all were measured on ``cluster`` where one is given."""
    groups: dict[tuple[Any, ...], list[Measurement]] = {}
    for row in rows:
        place = (row.gpu, row.ranks, row.ranks_per_node, row.gbps, row.network)
        timing = timing_of(row.timed_by, row.processes, row.size_bytes < LATENCY_BYTES)
        groups.setdefault((row.source, row.op, timing, place), []).append(row)
    found, placed = [], {}
    for (_, _, timing, place), members in groups.items():
        if place not in placed:
            gpu, ranks, per_node, gbps, name = place
            placed[place] = group_on(
                gpu, ranks, cluster, gpus_per_node=per_node, internode_gbps_per_gpu=gbps, network=name
            )
        telling = [one for one in members if timing.tells(one.seconds, placed[place].nodes > 1)]
        if telling:
            found.append(_batch(telling, placed[place], timing))
    return found


def _batch(members: Sequence[Measurement], group: Group, timing: Timing) -> Batch:
    """Rows of one group, without what their timer added."""
    import numpy

    sizes = numpy.array([float(one.size_bytes) for one in members])
    measured = numpy.array([one.seconds - timing.call for one in members])
    group = group.on_bridge() if group.bridged else group
    network = group.network._replace(factors={})
    group, op = group._replace(network=network), members[0].op
    family = FAMILIES[op]
    link = f"{network.inter if group.nodes > 1 else network.inside}/{family}"
    rings = network.nvlink and network.generation < NVLS_GENERATION
    floor = timing.launch * float(group.ranks / group.nodes)
    terms = _terms(op, sizes, group)
    inside = f"{network.inside}/{family}"
    return Batch(link, inside, members[0].source, tuple(members), terms, measured, rings, floor)


def _terms(op: str, sizes: Any, group: Group) -> tuple[Any, ...]:
    """Latency and transfer times of each candidate, as arrays of candidates by rows."""
    import numpy

    found = nccl.candidates(op, sizes, group)

    def table(pick: Callable[[Any], Any]) -> Any:
        return numpy.array([pick(one) + 0 * sizes for one in found])

    long = numpy.array([[one.protocol != "LL"] for one in found])
    inside, across = table(lambda one: sizes / one.inside), table(lambda one: sizes / one.across)
    return long, table(lambda one: one.latency), inside, across, table(lambda one: sizes / one.cap)
