"""Measured collectives as the fit of links wants them: read from CSV, grouped by shape, candidates priced once."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from distsim.engine.collective import group_on
from distsim.engine.networks import nccl
from distsim.engine.networks.link_factors import FAMILIES
from distsim.engine.networks.network import NVLS_GENERATION, Group
from distsim.engine.networks.pricing import op_named
from distsim.errors import DistsimError
from distsim.units import MICROSECOND

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


def read(path: str) -> list[Measurement]:
    """Rows of a file such as the shipped ``presets/runs/collectives.csv``."""
    found = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle)
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
            row["network"] or None,
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


def batches(rows: Iterable[Measurement], cluster: Any = None) -> list[Batch]:
    """Rows grouped so that each group is priced in one go; all were measured on ``cluster`` where one is given."""
    import numpy

    groups: dict[tuple[Any, ...], list[Measurement]] = {}
    for row in rows:
        key = (row.source, row.op, row.gpu, row.ranks, row.ranks_per_node, row.gbps, row.network)
        groups.setdefault(key, []).append(row)
    found, placed = [], {}
    for (source, op, gpu, ranks, per_node, gbps, name), members in groups.items():
        place = (gpu, ranks, per_node, gbps, name)
        if place not in placed:
            placed[place] = group_on(
                gpu, ranks, cluster, gpus_per_node=per_node, internode_gbps_per_gpu=gbps, network=name
            )
        sizes = numpy.array([float(one.size_bytes) for one in members])
        measured = numpy.array([one.seconds for one in members])
        group = placed[place].on_bridge() if placed[place].bridged else placed[place]
        network = group.network._replace(factors={})
        group = group._replace(network=network)
        family = FAMILIES[op]
        link = f"{network.inter if group.nodes > 1 else network.inside}/{family}"
        terms = _terms(op, sizes, group)
        rings = network.nvlink and network.generation < NVLS_GENERATION
        found.append(Batch(link, f"{network.inside}/{family}", source, tuple(members), terms, measured, rings))
    return found


def _terms(op: str, sizes: Any, group: Group) -> tuple[Any, ...]:
    """Latency and transfer times of each candidate, as arrays of candidates by rows."""
    import numpy

    found = nccl.candidates(op, sizes, group)

    def table(pick: Callable[[Any], Any]) -> Any:
        return numpy.array([pick(one) + 0 * sizes for one in found])

    long = numpy.array([[one.protocol != "LL"] for one in found])
    inside, across = table(lambda one: sizes / one.inside), table(lambda one: sizes / one.across)
    return long, table(lambda one: one.latency), inside, across, table(lambda one: sizes / one.cap)
