"""``distsim.pipeline``: a named or given schedule, checked, simulated and summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from distsim.engine.timelines import in_flight, order_check, rendezvous
from distsim.engine.timelines import input as given
from distsim.engine.timelines.input import Time
from distsim.engine.timelines.timeline import Timeline, simulate
from distsim.engine.timelines.wiring import Costs, Transfers
from distsim.errors import DistsimError
from distsim.formulas.bubbles import bubble_fraction
from distsim.schedules import registry, text
from distsim.schedules.action import Schedule
from distsim.schedules.repeats import short
from distsim.schedules.zb_auto import Times

if TYPE_CHECKING:
    from distsim.specs.model import Model

PassTimes = tuple[Time | None, Time | None, Time | None, Time | None]
PASSES = ("forward", "backward", "input_gradient", "weight_gradient")
OF_THE_PIPELINE = ("pp", "vpp", "gpus", "dp", "global_batch")
"""Job options that a pipeline's stages, micro-batches and chunks set."""


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
            **found,
        }


def pipeline(
    stages: int | None = None, micro: int | None = None, schedule: str | None = None, chunks: int | None = None,
    forward: Time | None = None, backward: Time | None = None, input_gradient: Time | None = None,
    weight_gradient: Time | None = None, hop: Time | None = 0.0, p2p: str = "async",
    order: str | Sequence[str] | None = None, placement: Sequence[int] | None = None,
    chains: Sequence[Sequence[int]] | None = None, fused: str | None = None, fused_time: Time | None = None,
    memory_limit: int | None = None, group: int | None = None, loss: float = 0.0,
    optimizer: Time | None = None, optimizer_sync: float | None = 0.0, overlap: bool = True, contention: bool = False,
    model: str | Model | None = None, **job: Any,
) -> Pipeline:  # fmt: skip
    """Simulate a schedule of ``stages`` and ``micro`` micro-batches, or a given ``order`` (one line per stage).

    Times are of one micro-batch through one whole stage: a number, a list per stage or a list per chunk. ``optimizer``
    adds the optimizer step at the end; with ``optimizer_sync`` (seconds, None for none) all stages first agree on it.
    With ``model`` the times are those of its stages, and ``job`` are further options of it (gpu, tp, seq …).
    """
    given.check_words(p2p, fused, schedule)
    given.check_numbers(memory_limit=memory_limit, group=group)
    given.check_switches(overlap=overlap, contention=contention)
    hop = 0.0 if hop is None else hop
    name = schedule or registry.usual(chunks)
    times: PassTimes = (forward, backward, input_gradient, weight_gradient)
    if model is not None or job:
        each = given.stated_chunks(chunks, placement, stages)
        named = None if order is not None else name
        times, hop = _of_model(model, stages, micro, each, named, (*times, hop or None), job)
    programs = None
    if order is None:
        given.refuse("a named schedule takes no {}", "only a given order does", placement=placement, chains=chains)
        parts, total = _named(stages, micro, name, chunks, times, hop, memory_limit, group)
    else:
        only_named = {"schedule": schedule, "memory_limit": memory_limit, "group": group}
        given.refuse("a given order takes no {}", "only a named schedule does", **only_named)
        parts, total, programs = _given(order, stages, micro, chunks, placement, chains)
    parts = _fusion(parts, fused, fused_time, programs is not None)
    costs = given.costs(parts, *times, fused_time, loss)
    delays = given.hops(hop, len(parts.orders), given.wraps_around(parts))
    transfers = Transfers(delays, p2p == "rendezvous", not overlap, contention)
    if programs is None:
        timeline = simulate(parts, total, costs, transfers)
    else:
        timeline = rendezvous.replay(parts, programs, costs, transfers)
    steps = _optimizer(timeline, optimizer, optimizer_sync)
    return summarise(parts, total, costs, timeline, transfers, steps)


def _given(
    order: str | Sequence[str], stages: int | None, micro: int | None, chunks: int | None,
    placement: Sequence[int] | None, chains: Sequence[Sequence[int]] | None,
) -> tuple[Schedule, int, list[list[rendezvous.Step]] | None]:  # fmt: skip
    """A schedule that the user wrote, checked, and its messages if it names them."""
    lines = given.lines(order)
    programs = None
    micro = None if micro is None else given.whole_number(micro, "micro-batches", "--micro 8")
    if rendezvous.is_program(lines):
        lines, programs = rendezvous.split(lines)
    parts = given.given_order(text.parse(lines), stages, chunks, placement, chains)
    return parts, order_check.check_complete(parts, micro), programs


def _of_model(
    model: str | Model | None, stages: int | None, micro: int | None, chunks: int | None, schedule: str | None,
    stated: tuple[Time | None, ...], job: dict[str, Any],
) -> tuple[PassTimes, Time]:  # fmt: skip
    """The times of a model's own stages, and of a hop between them."""
    if model is None:
        raise DistsimError(f"{', '.join(job)}: only with model", "e.g. model='llama-70b'")
    if any(one is not None for one in stated):
        raise DistsimError("model and times of passes or hops exclude each other", "leave one of them out")
    p = whole_number_given(stages, "stages", "--stages 4")
    m = whole_number_given(micro, "micro-batches", "--micro 8")
    from distsim.engine.timelines.model import model_setup, pass_times  # a schedule by itself loads no presets

    if own := [name for name in OF_THE_PIPELINE if name in job]:
        raise DistsimError(f"{', '.join(own)}: set by stages, micro and chunks", "leave it out")
    found = pass_times(model_setup(model, p, m, chunks, schedule, **job))
    forward, backward, input_gradient, weight_gradient = (found[name] for name in PASSES)
    return (forward, backward, input_gradient, weight_gradient), found["hop"]


def _named(
    stages: int | None, micro: int | None, name: str, chunks: int | None,
    times: PassTimes, hop: Time,
    memory_limit: int | None, group: int | None,
) -> tuple[Schedule, int]:  # fmt: skip
    p = whole_number_given(stages, "stages", "--stages 4")
    m = whole_number_given(micro, "micro-batches", "--micro 8")
    kind = registry.find(name)
    if chunks is not None:
        chunks = given.whole_number(chunks, "chunks", "--chunks 2")
    count = registry.chunks_for(name, chunks)
    given.check_size(p, m, count, kind.splits)
    if memory_limit is not None and "limit" not in kind.options:
        raise DistsimError(f"schedule {name} takes no memory limit", "zb-auto finds an order under one")
    if group is not None and "group" not in kind.options:
        raise DistsimError(f"schedule {name} takes no group size", "interleaved-1f1b-megatron does")
    options: dict[str, Any] = {"limit": memory_limit, "group": group}
    if "times" in kind.options:
        empty = Schedule(name, [[] for _ in range(p)], list(range(p)), [list(range(p))], 1, [1] * p)
        costs = given.costs(empty, *times)
        slowest = hop if isinstance(hop, (int, float)) else max(hop, default=0.0)
        options["times"] = Times(costs.forward, costs.input_gradient, costs.weight_gradient, slowest)
    return registry.build(name, p, m, count, **options), m


def whole_number_given(value: int | None, name: str, example: str) -> int:
    """A count that must be given for a named schedule."""
    if value is None:
        raise DistsimError(f"the number of {name} is missing", f"give it, e.g. {example}")
    return given.whole_number(value, f"the number of {name}", example)


def _fusion(parts: Schedule, fused: str | None, fused_time: Time | None, program: bool) -> Schedule:
    """Apply the rule for fused blocks; refuse it where there are none."""
    any_fused = any(action[0] == "FB" for order in parts.orders for action in short(order))
    if not any_fused:
        if fused is not None or fused_time is not None:
            raise DistsimError(
                f"schedule {parts.name} fuses no forward with a backward", "leave the rule and time of fused blocks out"
            )
        return parts
    if fused == "split":
        if program:
            raise DistsimError("an order that posts its messages runs fused blocks as they are written", "use atomic")
        if fused_time is not None:
            raise DistsimError("a split fused block has no time of its own", "use atomic, or leave the time out")
        return parts._replace(orders=given.split_fused(parts.orders))
    return parts


def _optimizer(timeline: Timeline, seconds: Time | None, sync: float | None) -> tuple[tuple[float, float], ...]:
    """When each stage steps, if it does: after its own last action, or ``sync`` after everybody's."""
    if seconds is None:
        return ()
    stages = len(timeline.busy)
    each: list[Any] = list(seconds) if isinstance(seconds, (list, tuple)) else [seconds] * stages
    if len(each) != stages or not all(map(given.is_time, (*each, 0.0 if sync is None else sync))):
        raise DistsimError(
            f"the optimizer step takes {seconds}", f"give a time from 0 to {given.LONGEST:g}, or {stages} of them"
        )
    begins = timeline.last_end if sync is None else [timeline.makespan + float(sync)] * stages
    return tuple((begin, begin + float(step)) for begin, step in zip(begins, each, strict=True))


def summarise(
    parts: Schedule, micro: int, costs: Costs, timeline: Timeline, transfers: Transfers,
    steps: tuple[tuple[float, float], ...] = (),
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
        transfers=transfers, optimizer=steps,
    )  # fmt: skip
