"""The same job with other choices of exchange: ZeRO 0 to 3, and gradients reduced after every micro-batch."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from distsim.engine.exchanges.flows import STATES
from distsim.engine.jobs.exchange import Exchange, reduces_last
from distsim.engine.jobs.framework_notes import beyond_default_at, refuse_other_stage
from distsim.engine.jobs.resolve import resolve
from distsim.engine.traffic import Row, TrafficReport, comm_of
from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES, zero_volume_parameters
from distsim.specs.flags import words

_CHOICES: tuple[tuple[str, ...], ...] = (
    ("zeropp",), ("compress",), ("sync", "sync_every", "sync_gbps", "servers"), ("no_sync",),
)  # fmt: skip
"""Job options that change what replicas exchange; those of one group go together."""


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
    without: tuple[str, ...] = ()
    """Options of the job, as they are typed, that do not go with the stage."""
    beyond: str = ""
    """What the framework would refuse of the stage if somebody named it."""
    all_reduced: bool = False
    """Whether gradients are all-reduced, as without ZeRO, though not all ranks need them."""
    unsharded: float = 0
    """Of a stage that is not valid: elements that a rank would send there."""


def data_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows of data parallelism and ZeRO, or of what the job has in their place."""
    return [row for row in rows if row.role in STATES or row.role in ("varied", "buffers")]


def zero_traffic(report: TrafficReport) -> list[ZeroTraffic]:
    """Data-parallel traffic of the job's own busiest pipeline stage at each ZeRO stage: the job's as it is, the others
    with those of its choices that go with them."""
    own = report.setup.layout.zero
    return [_volume(report, report.stage, zero) if zero == own else _at(report, zero) for zero in range(4)]


def _at(report: TrafficReport, zero: int) -> ZeroTraffic:
    setup, job = report.setup, report.setup.job
    fields: dict[str, Any] = {"zero": zero, "zero_group": job.zero_group if zero else None,
                              "offload": None, "offload_to": None, "offload_fraction": None}  # fmt: skip
    stated = [names for names in _CHOICES if getattr(job, names[0]) is not None]
    problem = ""
    for left in _fewest(stated):
        dropped = dict.fromkeys(itertools.chain.from_iterable(left))
        try:
            other = resolve(job.model_copy(update={**fields, **dropped}))  # refuses what the framework does not run
            refuse_other_stage(other, zero)
            found = comm_of(replace(setup, layout=other.layout, job=other.job))
        except DistsimError as error:
            problem = error.problem
            continue
        told = tuple(" ".join(words(names[0], getattr(job, names[0]))) for names in left)
        beyond = beyond_default_at(other, setup)
        return _volume(found, report.stage, zero)._replace(without=told, beyond=beyond)
    whole = _unsharded(report) if zero == 0 else 0
    return ZeroTraffic(zero, float(zero_volume_parameters(zero)), 0, 0, 0, problem, unsharded=whole)


def _unsharded(report: TrafficReport) -> float:
    """Elements that a rank would send without ZeRO, which the framework does not run here: what the law counts the
    other stages in."""
    setup = report.setup
    layout = setup.layout._replace(zero=0, zero_group=setup.layout.dp * setup.layout.cp)
    try:
        return _volume(
            comm_of(replace(setup, layout=layout, job=setup.job.model_copy(update={"zeropp": None}))), report.stage, 0
        ).elements
    except DistsimError:
        return 0


def _fewest(stated: list[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """What may be left out of some choices: nothing, one of them, two."""
    for number in range(len(stated) + 1):
        yield from itertools.combinations(stated, number)


def _volume(report: TrafficReport, stage: int, zero: int) -> ZeroTraffic:
    rows = data_rows(report.stages[stage])
    return ZeroTraffic(
        zero, float(zero_volume_parameters(zero)),
        sum(row.wire_bytes_per_rank / DTYPE_BYTES[row.dtype] for row in rows),
        sum(row.wire_bytes_per_rank for row in rows), sum(row.seconds for row in rows),
        all_reduced=any(row.role == "gradients" and row.op == "all_reduce" for row in rows),
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
