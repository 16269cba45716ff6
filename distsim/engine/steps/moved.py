"""What moves in each segment of a step's timeline, so that all segments together move what ``distsim comm`` counts.

A segment is a length of time, not a call: one may be part of a call, and one may stand for several. Each exchange of a
rank is therefore dealt to the segments that it is part of by their lengths: bytes, calls, and seconds at its price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from distsim.engine.exchanges.all_flows import network_of, price_of, stage_flows
from distsim.engine.exchanges.flows import Flow
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.stages import build_stages

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.engine.steps.passes import Segment
    from distsim.engine.steps.timeline import StepTimeline

DIGITS = 9
"""Of parts of calls behind the point: sums of lengths are no more exact."""


class Exchanged(NamedTuple):
    """One exchange of a rank in a step, and for how long the timeline draws it."""

    flow: Flow
    calls: float
    seconds: float
    """As priced."""
    drawn: float

    @property
    def size_bytes(self) -> float:
        """What all of its calls move, counted as ``distsim comm`` counts a call."""
        return self.calls * float(self.flow.bytes_logical)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        flow = self.flow
        return {
            "purpose": flow.purpose, **_common((flow,)), "phase": flow.phase,
            "bytes_per_call": round(flow.bytes_logical), "calls_per_step": self.calls,
            "priced_seconds": self.seconds, "drawn_seconds": self.drawn,
        }  # fmt: skip


class Moved:
    """The exchanges of one stage's rank, dealt to its segments."""

    def __init__(self, step: StepTimeline, stage: int) -> None:
        drawn: dict[int, float] = {}
        passing: set[int] = set()
        flows: dict[int, Flow] = {id(flow): flow for flow in step.part_of(stage).flows}
        for segment, times, _ in step.repeated(stage):
            for flow in segment.flows:
                flows[id(flow)] = flow
                drawn[id(flow)] = drawn.get(id(flow), 0.0) + times * (segment.end - segment.start)
                if segment.micro is not None:
                    passing.add(id(flow))
        visited = [stage] if len(step.run.parts.chains) == 1 else [stage, step.run.stages - 1 - stage]
        own = [{id(flow) for flow in step.part_of(one).flows} for one in visited]
        seconds = _prices(step.report.setup, visited)
        self.rows: dict[int, Exchanged] = {}
        for key, flow in flows.items():
            # with two copies of the model a rank runs half of the micro-batches of each of its two stages
            part = sum(key in some for some in own) / len(own) if key in passing else 1
            calls = float(flow.calls_per_step) * part
            self.rows[key] = Exchanged(flow, calls, seconds[_kind(flow)] * calls, drawn.get(key, 0.0))

    def told(self) -> Iterator[dict[str, Any]]:
        """Every exchange as plain data."""
        return (row.to_dict() for row in self.rows.values())

    def within(self, segment: Segment) -> dict[str, Any]:
        """What moves in a segment, as plain data."""
        rows = [self.rows[id(flow)] for flow in segment.flows]
        shares = [(segment.end - segment.start) / row.drawn for row in rows]
        told = {
            **_common(segment.flows),
            "bytes": round(_dealt([row.size_bytes for row in rows], shares)),
            "calls": round(_dealt([row.calls for row in rows], shares), DIGITS),
            "priced_seconds": _dealt([row.seconds for row in rows], shares),
        }
        return told | ({"bytes_per_call": round(rows[0].flow.bytes_logical)} if len(rows) == 1 else {})


def _prices(setup: Setup, stages: Sequence[int]) -> dict[tuple[Any, ...], float]:
    """Seconds of a call of each exchange of some stages, the first stage's before others'."""
    network, built = network_of(setup), build_stages(setup)
    found: dict[tuple[Any, ...], float] = {}
    for stage in reversed(stages):
        flows = stage_flows(setup, exchange_of(setup), network, built[stage])
        found |= {_kind(flow): float(price_of(flow, network).seconds) for flow in flows}
    return found


def _kind(flow: Flow) -> tuple[Any, ...]:
    """What an exchange has in common with that of a stage that is drawn alike."""
    return (
        flow.purpose,
        flow.op,
        flow.phase,
        flow.dtype,
        flow.span.group,
        flow.span.ranks,
        flow.bytes_logical,
        flow.calls,
    )


def _dealt(sums: Sequence[float], shares: Sequence[float]) -> float:
    return sum(whole * share for whole, share in zip(sums, shares, strict=True))


def _common(flows: Sequence[Flow]) -> dict[str, Any]:
    """The operations, groups and formats of exchanges, each named once, and the largest group's ranks."""
    told = {
        "op": [flow.op for flow in flows],
        "group": ["+".join(flow.groups) or flow.span.group for flow in flows],
        "dtype": [flow.dtype for flow in flows],
    }
    named = {name: ", ".join(dict.fromkeys(values)) for name, values in told.items()}
    return {**named, "group_size": max(round(flow.span.ranks) for flow in flows)}
