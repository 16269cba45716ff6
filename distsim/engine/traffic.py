"""What a rank exchanges in one optimizer step: every kind of collective with its bytes, link and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from distsim import catalog
from distsim.arrays import Number, where
from distsim.engine.exchanges.all_flows import network_of, price_of, stage_flows
from distsim.engine.exchanges.flows import Flow, Role
from distsim.engine.exchanges.hidden import STATES, beside_each, hidden_fraction
from distsim.engine.exchanges.offloading import DOWN, READ, UP, WRITE
from distsim.engine.exchanges.profile_use import unused_by_job
from distsim.engine.exchanges.reach import refuse_beyond, straddling
from distsim.engine.footprint.states import filled_experts
from distsim.engine.jobs.exchange import Exchange, exchange_of
from distsim.engine.jobs.framework_notes import beyond_default
from distsim.engine.jobs.lacking import lacking
from distsim.engine.jobs.no_effect import average_note, loss_note, sync_note
from distsim.engine.jobs.reference import pair_note
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.jobs.uncounted import timed_notes
from distsim.engine.jobs.words import few
from distsim.engine.networks.crossing import crossing_fraction
from distsim.engine.networks.network import Network
from distsim.engine.networks.unknown import unknown_links
from distsim.formulas.traffic import left_seconds
from distsim.specs.job import Job
from distsim.specs.named import Named, job_of

PHASES = ("forward", "backward", "step")
GPU_OPS, DRIVE_OPS = (DOWN, UP), (WRITE, READ)
HOST_OPS = (*GPU_OPS, *DRIVE_OPS)
NOT_TOLD = ("role", "recomputed", "passed_on", "local", "sharing", "served")
"""Fields of a row that its purpose tells people, or that another field holds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of collective of one rank and step. ``bytes_per_call`` is the larger of a call's input and output."""

    purpose: str
    op: str
    group: str
    group_size: Number
    dtype: str
    phase: str
    calls: Number
    bytes_per_call: Number
    wire_bytes_per_rank: Number
    """Bytes that one rank sends over all calls (the average over the group)."""
    link: Any
    """The slowest link on the way."""
    algorithm: Any
    seconds: Number
    exposed_seconds: Number
    """Left where computation of the same phase hides what can be hidden."""
    level_bytes: tuple[Number, ...]
    """The parts of the wire bytes that leave the domain of fast links, and each tier of switches above it."""
    every_steps: Number = 1
    """Above 1 for what happens once in so many steps; bytes and seconds are averages per step."""
    role: Role = ""
    recomputed: bool = False
    passed_on: Number = 0
    """The part of the wire bytes that ranks pass on inside a domain."""
    groups: tuple[str, ...] = ()
    """All groups whose ranks make the call together; ``group`` is the one that shares states, or the outermost."""
    local: Number = 1
    """Ranks of the group on one domain."""
    sharing: Number = 1
    """What a rank that sends to another domain leaves of a GPU's share of NICs to others: less than all where few ranks
    send at once."""
    served: Number = 0
    """Bytes that the link of a parameter server carries for all ranks."""

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract."""
        whole = {name: getattr(self, name) for name in self.__slots__ if name not in NOT_TOLD}
        for name in ("group_size", "calls", "bytes_per_call", "wire_bytes_per_rank"):
            whole[name] = round(whole[name])
        whole["level_bytes"], whole["groups"] = [round(level) for level in self.level_bytes], [*self.groups]
        return {**whole, "link": str(self.link), "algorithm": str(self.algorithm)}


def sent_bytes(rows: Sequence[Row]) -> int:
    """Bytes that rows send together: the sum of what each is told to send."""
    return sum(round(row.wire_bytes_per_rank) for row in rows)


@dataclass(frozen=True, repr=False, eq=False)
class TrafficReport:
    """The answer of ``distsim comm``; ``collectives`` are those of the stage that sends most."""

    setup: Setup
    exchange: Exchange
    network: Network
    stages: tuple[tuple[Row, ...], ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"TrafficReport({few(self.setup)}: wire_bytes_per_rank={self.wire_bytes_per_rank:,})"

    @cached_property
    def stage(self) -> int:
        """The pipeline stage whose ranks send most, of several the one whose exchanges take longest."""
        sent = [(sent_bytes(rows), seconds) for rows, seconds in zip(self.stages, self.stage_seconds, strict=True)]
        return sent.index(max(sent))

    @property
    def stage_seconds(self) -> tuple[float, ...]:
        """Time of all exchanges of each stage, one after the other."""
        return tuple(float(sum(row.seconds for row in rows)) for rows in self.stages)

    @property
    def collectives(self) -> tuple[Row, ...]:
        """Rows of the stage that sends most."""
        return self.stages[self.stage]

    @property
    def wire_bytes_per_rank(self) -> int:
        """All that one rank of that stage sends in a step."""
        return sent_bytes(self.collectives)

    @property
    def seconds(self) -> float:
        """Time of all exchanges, one after the other."""
        return float(sum(row.seconds for row in self.collectives))

    @property
    def exposed_seconds(self) -> float:
        """Time of exchanges that computation at the chip's peak rate cannot hide."""
        return float(sum(row.exposed_seconds for row in self.collectives))

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {
            "schema": "distsim.comm/1", "job": self.setup.written(self.exchange), "stage": self.stage,
            "collectives": [row.to_dict() for row in self.collectives],
            "wire_bytes_per_rank": self.wire_bytes_per_rank, "seconds": self.seconds,
            "exposed_seconds": self.exposed_seconds,
            "stages": [
                {"stage": index, "wire_bytes_per_rank": sent_bytes(rows),
                 "seconds": self.stage_seconds[index]}
                for index, rows in enumerate(self.stages)
            ],
            "notes": list(self.notes),
        }  # fmt: skip


@catalog.settled()
def comm(job: Job | Named | None = None, /, **options: Any) -> TrafficReport:
    """What crosses the links in one optimizer step of a job, given as a Job, or as its fields, the model first: bytes
    and seconds of each row of ``collectives``. Raises DistsimError for what does not exist or does not fit
    together."""
    return comm_of(resolve(job_of(job, options)))


@catalog.settled()
def comm_of(setup: Setup, change: Callable[[Exchange], Exchange] | None = None) -> TrafficReport:
    """What crosses the links for a resolved setup; ``change`` alters its choices of exchange (for comparisons)."""
    exchange = exchange_of(setup)
    if change is not None:
        exchange = change(exchange)
    network = network_of(setup)
    refuse_beyond(setup, setup.layout.gpus)
    stages = tuple(tuple(stage_rows(setup, exchange, network, stage)) for stage in build_stages(setup))
    of_links = unknown_links(setup.accelerator, setup.cluster, setup.layout.gpus)
    notes = (*setup.notes, *beyond_default(setup), *lacking(setup, timed=False), *filled_experts(setup),
             *_notes(setup, exchange), *straddling(setup), *of_links, *unused_by_job(setup))  # fmt: skip
    return TrafficReport(setup, exchange, network, stages, notes)


def _notes(setup: Setup, exchange: Exchange) -> list[str]:
    layout, job = setup.layout, setup.job
    notes = [*timed_notes(job, "traffic"), *filter(None, (sync_note(setup), average_note(job),
             loss_note(job, layout), pair_note(job, layout.micro_batch)))]  # fmt: skip
    if (
        job.clip is None
        and not exchange.clip
        and (layout.zero * (layout.dp * layout.cp - 1) + layout.tp * layout.pp) > 1
    ):
        name, usual = setup.framework.name, setup.framework.usual.get("clip")
        clips = f"{name}'s usual configurations clip" if usual else f"{name} clips only on request"
        notes.append(f"--clip not given: no gradient norm is counted; {clips}")
    if exchange.compress == "1bit":
        notes.append("1-bit compression is priced as after its warm-up steps, which reduce uncompressed gradients")
    return notes


def stage_rows(setup: Setup, exchange: Exchange, network: Network, stage: Stage) -> list[Row]:
    """All that one rank of a stage exchanges, with prices."""
    return [row for row, _ in rows_of_flows(setup, exchange, network, stage)]


def rows_of_flows(setup: Setup, exchange: Exchange, network: Network, stage: Stage) -> list[tuple[Row, Flow]]:
    """The same, each with what it is the price of."""
    flows = stage_flows(setup, exchange, network, stage)
    found = [row for row, _ in _exposed(setup, exchange, stage, [priced(flow, network) for flow in flows])]
    purposes = {row.purpose: place for place, row in reversed(list(enumerate(found)))}
    both = zip(found, flows, strict=True)
    return sorted(both, key=lambda one: (purposes[one[0].purpose], PHASES.index(one[0].phase)))


def priced(flow: Flow, network: Network) -> tuple[Row, bool]:
    """A flow with its price, and whether it can hide."""
    seconds, wire, link, algorithm, *_ = price_of(flow, network)
    local: Number = 1
    sharing: Number = 1
    served: Number = 0
    if flow.fixed is not None:
        levels: tuple[Number, ...] = (0 if flow.op in HOST_OPS else wire,)
        given = flow.fixed.arguments or {}
        if "servers" in given:
            served = given["size_bytes"] * given["workers"] / given["servers"]
    else:
        local, sharing = (group := flow.span.placed(network)).local, group.sharing
        levels = tuple(wire * share for share in crossing_fractions(flow, algorithm, network))
    times, groups = flow.calls / flow.every, flow.groups or (flow.span.group,)
    return Row(
        flow.purpose, flow.op, _chief(groups), flow.span.ranks, flow.dtype, flow.phase, flow.calls, flow.bytes_logical,
        (wire + flow.passed_on) * times, link, algorithm, seconds * times, seconds * times,
        tuple(level * times for level in levels), flow.every, flow.role, flow.recomputed, flow.passed_on * times,
        groups, local, sharing, served * times,
    ), flow.hides  # fmt: skip


def _chief(groups: tuple[str, ...]) -> str:
    """The group of the JSON contract that stands for several."""
    return next((group for group in groups if group in STATES), groups[-1])


def crossing_fractions(flow: Flow, algorithm: Any, network: Network) -> list[Number]:
    """Shares of a flow's bytes that leave the domain, and each group of nodes below a tier of switches."""
    sizes = (1.0, *(max(domains, 1.0) for domains, _ in network.tiers))
    placed = (flow.span.placed(network, round(below * network.domain)) for below in sizes)
    return [crossing_fraction(flow.pattern, algorithm, group) for group in placed]


def _exposed(
    setup: Setup, exchange: Exchange, stage: Stage, rows: Iterable[tuple[Row, bool]]
) -> list[tuple[Row, bool]]:
    """Rows with the exposed part of what can run beside computation: all of a phase shares its compute time, all that
    comes once in a step that of one micro-batch."""
    found = list(rows)
    for phase in PHASES:
        hiding = [
            (index, row, beside_each(setup, exchange, row.group, row.role, phase))
            for index, (row, hides) in enumerate(found) if hides and row.phase == phase
        ]  # fmt: skip
        often = sum(row.seconds * each for _, row, each in hiding)
        once = sum(row.seconds * (1 - each) for _, row, each in hiding)
        passes = setup.layout.micro_batches
        shares = hidden_fraction(setup, stage, phase, often, passes), hidden_fraction(setup, stage, phase, once, 1)
        for index, row, each in hiding:
            found[index] = replace(row, exposed_seconds=left_seconds(row.seconds, where(each, *shares))), True
    return found
