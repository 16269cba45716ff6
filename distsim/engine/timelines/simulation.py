"""A named schedule simulated, and what is summed up of any: bubbles, idle times, peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from distsim import keywords
from distsim.engine.timelines import in_flight
from distsim.engine.timelines import input as given
from distsim.engine.timelines.input import Time
from distsim.engine.timelines.partition import Partition
from distsim.engine.timelines.timeline import Timeline, simulate
from distsim.engine.timelines.wiring import Costs, Transfers
from distsim.errors import DistsimError
from distsim.formulas.bubbles import bubble_fraction
from distsim.schedules import registry
from distsim.schedules.action import Schedule
from distsim.schedules.repeats import short
from distsim.schedules.split_passes import Times

PassTimes = tuple[Time | None, Time | None, Time | None, Time | None]


class Action(NamedTuple):
    """One action and its time. ``chunk`` counts in model order; a fused block (FB) also names its backward; O is the
    optimizer step."""

    stage: int
    kind: str
    micro: int
    chunk: int
    start: float
    end: float
    backward_micro: int | None = None
    backward_chunk: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The action as the JSON shows it."""
        return {key: value for key, value in self._asdict().items() if value is not None}


@dataclass(frozen=True, repr=False, eq=False)
class Pipeline:
    """A simulated schedule; peaks count whole stages. ``parts`` and ``timeline`` hold the raw result."""

    schedule: str
    stages: int
    micro: int
    chunks: int
    makespan: float
    bubble_fraction: float
    span_bubble_fraction: float
    idle: tuple[float, ...]
    busy: tuple[float, ...]
    peak_in_flight: tuple[float, ...]
    peak_until_weight_gradient: tuple[float, ...]
    weight_versions: tuple[int, ...]
    parts: Schedule
    costs: Costs
    timeline: Timeline
    transfers: Transfers
    optimizer: tuple[tuple[float, float], ...] = ()
    job: Mapping[str, Any] | None = None
    """Of the model whose times they are, every option as resolved; None where no model is named."""
    split: Partition | None = None
    """Layers of each part, where their times were split over the stages."""

    def __repr__(self) -> str:
        of = f"{self.schedule}: {self.stages} stages, {self.micro} micro-batches"
        return f"Pipeline({of}, makespan={self.makespan:.6g}, bubble_fraction={self.bubble_fraction:.4f})"

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """Every action with its start and end, stage by stage, in the order it runs."""
        found: list[Action] = []
        for stage, order in enumerate(self.parts.orders):
            for action, start in zip(order, self.timeline.starts[stage], strict=True):
                end = start + self.costs.duration(action)
                found.append(Action(stage, action[0], action[2], action[1], start, end, *reversed(action[3:])))
            for start, end in self.optimizer[stage : stage + 1]:
                found.append(Action(stage, "O", 0, self.parts.placement.index(stage), start, end))
        return tuple(found)

    @property
    def efficiency(self) -> float:
        """Share of stage time that computes: one minus the bubble fraction."""
        return 1.0 - self.bubble_fraction

    def to_dict(self, actions: bool = True) -> dict[str, Any]:
        """The JSON of ``distsim pipeline --json``."""
        found = {"actions": [action.to_dict() for action in self.actions]} if actions else {}
        return {
            "schema": "distsim.pipeline/1",
            **({} if self.job is None else {"job": dict(self.job)}),
            "schedule": self.schedule,
            "stages": self.stages,
            "micro": self.micro,
            "chunks": self.chunks,
            "makespan": self.makespan,
            "bubble_fraction": self.bubble_fraction,
            "span_bubble_fraction": self.span_bubble_fraction,
            "idle": list(self.idle),
            "busy": list(self.busy),
            "peak_in_flight": list(self.peak_in_flight),
            "peak_until_weight_gradient": list(self.peak_until_weight_gradient),
            "weight_versions": list(self.weight_versions),
            "placement": list(self.parts.placement),
            **({} if self.split is None else {"layers": list(self.split.sizes)}),
            **found,
        }


def simulated(
    stages: int, micro: int, schedule: str | None, chunks: int | None = None, forward: Time | None = None,
    backward: Time | None = None, input_gradient: Time | None = None, weight_gradient: Time | None = None,
    hop: Time = 0.0, group: int | None = None, trailing: Sequence[float] | None = None,
) -> Pipeline:  # fmt: skip
    """A named schedule with messages that run beside passes; times are as those of ``distsim.pipeline``. ``trailing``
    seconds at the end of each chunk's backward keep its stage, not the one before."""
    times = (forward, backward, input_gradient, weight_gradient)
    parts, total = named_order(stages, micro, schedule or registry.usual(chunks), chunks, times, hop, group=group)
    behind = None if trailing is None else given.per_chunk(trailing, parts, "trailing")
    costs = given.costs(parts, *times)._replace(trailing=behind)
    transfers = Transfers(given.hops(hop, parts))
    return summarise(parts, total, costs, simulate(parts, total, costs, transfers), transfers)


def named_order(
    stages: int | None, micro: int | None, name: str, chunks: int | None,
    times: PassTimes, hop: Time,
    memory_limit: int | None = None, group: int | None = None, weight_memory: float | None = None, loss: float = 0.0,
) -> tuple[Schedule, int]:  # fmt: skip
    """The actions of a named schedule, and its micro-batches."""
    p = whole_number_given(stages, "stages", "--stages 4")
    m = whole_number_given(micro, "micro-batches", "--micro 8")
    kind = registry.find(name)
    if chunks is not None:
        chunks = given.whole_number(chunks, "chunks", "--chunks 2")
    count = registry.chunks_for(name, chunks)
    given.check_size(p, m, count, kind.splits)
    if memory_limit is not None and "limit" not in kind.options:
        raise DistsimError(f"schedule {name} takes no memory limit", "zb-auto finds an order under one")
    if weight_memory is not None and "kept" not in kind.options:
        raise DistsimError(f"schedule {name} takes no memory share of weight gradients", "zb-auto does")
    if weight_memory is not None:
        keywords.number("weight_memory", weight_memory)
    if group is not None and "group" not in kind.options:
        raise DistsimError(f"schedule {name} takes no group size", "interleaved-1f1b-megatron does")
    options: dict[str, Any] = {"limit": memory_limit, "group": group, "kept": weight_memory}
    if "times" in kind.options:
        empty = Schedule(name, [[] for _ in range(p)], list(range(p)), [list(range(p))], 1, [1] * p)
        costs = given.costs(empty, *times, loss=loss)
        delays = given.hops(hop, empty)
        slowest = max(delays) if isinstance(delays, list) else delays
        options["times"] = Times(costs.forward, costs.input_gradient, costs.weight_gradient, slowest)
    return registry.build(name, p, m, count, **options), m


def whole_number_given(value: int | None, name: str, example: str) -> int:
    """A count that must be given for a named schedule."""
    if value is None:
        raise DistsimError(f"the number of {name} is missing", f"give it, e.g. {example}")
    return given.whole_number(value, f"the number of {name}", example)


def summarise(
    parts: Schedule, micro: int, costs: Costs, timeline: Timeline, transfers: Transfers,
    steps: tuple[tuple[float, float], ...] = (), job: Mapping[str, Any] | None = None, split: Partition | None = None,
) -> Pipeline:  # fmt: skip
    """Bubbles, idle times and peaks of a simulated schedule."""
    ends = timeline.last_end if not steps else [end for _, end in steps]
    busy = timeline.busy if not steps else [b + e - s for b, (s, e) in zip(timeline.busy, steps, strict=True)]
    makespan, stages = max(ends), len(ends)
    span = max(end - first for end, first in zip(ends, timeline.first_start, strict=True))
    held = [in_flight.peaks(short(order)) for order in parts.orders]
    v = parts.chunks
    return Pipeline(
        schedule=parts.name, stages=stages, micro=micro, chunks=v, makespan=makespan,
        bubble_fraction=max(0.0, bubble_fraction(stages * makespan, sum(busy))) if makespan else 0.0,  # sums round
        span_bubble_fraction=max(0.0, (span - max(busy)) / span) if span else 0.0,
        idle=tuple(max(0.0, makespan - one) for one in busy), busy=tuple(busy),
        peak_in_flight=tuple(most / v if v > 1 else most for most, _ in held),
        peak_until_weight_gradient=tuple(most / v if v > 1 else most for _, most in held),
        weight_versions=tuple(parts.weight_versions), parts=parts, costs=costs, timeline=timeline,
        transfers=transfers, optimizer=steps, job=job, split=split,
    )  # fmt: skip
