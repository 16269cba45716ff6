"""The same job with other choices of exchange: ZeRO 0 to 3, and gradients reduced after every micro-batch."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from distsim.engine.exchanges.flows import STATES
from distsim.engine.jobs.exchange import Exchange, reduces_last
from distsim.engine.jobs.framework_notes import refuse_other_stage
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.traffic import Row, TrafficReport, comm_of
from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES, zero_volume_parameters

_PLAIN = dict.fromkeys(("zeropp", "compress", "sync", "sync_every", "sync_gbps", "servers", "no_sync"))


class ZeroTraffic(NamedTuple):
    """One ZeRO stage: the published volume in parameters, and what this job then sends for data parallelism."""

    zero: int
    law: float
    elements: float
    """Elements that a rank sends, whatever their dtype: what the law speaks of."""
    wire_bytes: float
    seconds: float
    problem: str = ""
    """Why the stage is not valid for this job."""


def data_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows of data parallelism and ZeRO."""
    return [row for row in rows if row.role in STATES]


def zero_traffic(report: TrafficReport) -> list[ZeroTraffic]:
    """Data-parallel traffic of the job's own busiest pipeline stage at each ZeRO stage, without ZeRO++, compression or
    other variants."""
    return [_at(report.setup, report.stage, zero) for zero in range(4)]


def _at(setup: Setup, stage: int, zero: int) -> ZeroTraffic:
    fields = {**_PLAIN, "zero": zero, "zero_group": setup.job.zero_group if zero else None,
              "offload": None, "offload_to": None}  # fmt: skip
    law = float(zero_volume_parameters(zero))
    try:
        other = resolve(setup.job.model_copy(update=fields))  # refuses what the framework does not run
        refuse_other_stage(other, zero)
        report = comm_of(replace(setup, layout=other.layout, job=other.job))
    except DistsimError as error:
        return ZeroTraffic(zero, law, 0, 0, 0, error.problem)
    rows = data_rows(report.stages[stage])
    return ZeroTraffic(
        zero, law, sum(row.wire_bytes_per_rank / DTYPE_BYTES[row.dtype] for row in rows),
        sum(row.wire_bytes_per_rank for row in rows), sum(row.seconds for row in rows),
    )  # fmt: skip


class SyncCost(NamedTuple):
    """Data-parallel bytes and seconds per step when gradients are reduced once, and after every micro-batch."""

    once_bytes: float
    each_bytes: float
    once_seconds: float
    each_seconds: float


def sync_cost(report: TrafficReport) -> SyncCost | None:
    """What ``no_sync`` saves; None where there is nothing to put off."""
    setup = report.setup
    if setup.layout.micro_batches == 1 or not data_rows(report.collectives) or reduces_last(setup):
        return None
    if setup.layout.zero > setup.framework.supports.no_sync_zero:
        return None
    found = []
    for put_off in (True, False):
        other = report
        if report.exchange.no_sync != put_off:
            other = comm_of(report.setup, functools.partial(Exchange._replace, no_sync=put_off))
        rows = data_rows(other.stages[report.stage])
        found.append((sum(row.wire_bytes_per_rank for row in rows), sum(row.seconds for row in rows)))
    (once_bytes, once_seconds), (each_bytes, each_seconds) = found
    return SyncCost(once_bytes, each_bytes, once_seconds, each_seconds)
