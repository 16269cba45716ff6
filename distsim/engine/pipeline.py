"""``distsim.pipeline``: a named or given schedule, checked, simulated and summed up."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

from distsim.engine.timelines import input as given
from distsim.engine.timelines import order_check, rendezvous
from distsim.engine.timelines.balanced import PASSES, balanced
from distsim.engine.timelines.input import Time
from distsim.engine.timelines.simulation import PassTimes, Pipeline, named_order, summarise, whole_number_given
from distsim.engine.timelines.timeline import Timeline, simulate
from distsim.engine.timelines.wiring import Costs, Transfers
from distsim.errors import DistsimError
from distsim.keywords import refuse_unknown
from distsim.schedules import text
from distsim.schedules.action import Schedule
from distsim.schedules.repeats import short

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.model import Model

INSTEAD = {
    "blocking": "overlap=False is what --blocking is on the command line",
    "sync": "of a pipeline's optimizer step: optimizer_sync=0.0, or None for none",
    "pp": "here it is stages",
    "vpp": "here it is chunks",
}
"""What options of the command line, and of jobs, are called in a program that simulates a schedule by itself."""
Programs = list[list[rendezvous.Step]] | None
"""Actions and messages of each stage, where a given order names its messages."""
OF_THE_PIPELINE = ("pp", "vpp", "gpus", "dp", "global_batch")
"""Job options that a pipeline's stages, micro-batches and chunks set."""


def pipeline(
    stages: int | None = None, micro: int | None = None, schedule: str | None = None, chunks: int | None = None,
    forward: Time | None = None, backward: Time | None = None, input_gradient: Time | None = None,
    weight_gradient: Time | None = None, hop: Time | None = 0.0, p2p: str = "async",
    order: str | Sequence[str] | None = None, placement: Sequence[int] | None = None,
    chains: Sequence[Sequence[int]] | None = None, fused: str | None = None, fused_time: Time | None = None,
    memory_limit: int | None = None, group: int | None = None, weight_memory: float | None = None, loss: float = 0.0,
    optimizer: Time | None = None, optimizer_sync: float | None = 0.0, overlap: bool = True, contention: bool = False,
    balance: Sequence[float] | None = None, model: str | Model | None = None, **job: Any,
) -> Pipeline:  # fmt: skip
    """Simulate a schedule of ``stages`` and ``micro`` micro-batches, or a given ``order`` (one line per stage).

    Times are of one micro-batch through one whole stage: a number, a list per stage or a list per chunk. ``optimizer``
    adds the optimizer step at the end; with ``optimizer_sync`` (seconds, None for none) all stages first agree on it.
    ``balance`` lists forward times of layers, which are split over the stages. With ``model`` the times are those of
    its stages, and ``job`` are further options of it (gpu, tp, seq …).
    """
    bounds = given.bounds(memory_limit, group, weight_memory)
    ways = given.ways(p2p, overlap, contention)
    hop = 0.0 if hop is None else hop
    name = given.schedule_name(schedule, chunks)
    times: PassTimes = (forward, backward, input_gradient, weight_gradient)
    setup = split = None
    if balance is not None:
        given.refuse("balance takes no {}", "leave one of them out", model=model, order=order)
        split, times = balanced(balance, stages, name, chunks, times)
    if model is not None or job:
        sizes = stages, micro, given.stated_chunks(chunks, placement, stages), name if order is None else None
        setup, times, hop = _of_model(model, *sizes, (*times, hop or None, loss or None), job)
    placed = {"placement": placement, "chains": chains}
    if order is None:
        parts, total, programs = _named(name, stages, micro, chunks, times, hop, {**bounds, "loss": loss}, placed)
    else:
        parts, total, programs = _given(order, stages, micro, chunks, placed, {"schedule": schedule, **bounds})
    parts = _fusion(parts, fused, fused_time, programs is not None)
    costs = given.costs(parts, *times, fused_time, loss)
    transfers = ways._replace(hops=given.hops(hop, parts))
    timeline = _run(parts, total, programs, costs, transfers)
    steps = _optimizer(timeline, optimizer, optimizer_sync)
    return summarise(parts, total, costs, timeline, transfers, steps, _written(setup, parts.name), split)


def _run(parts: Schedule, total: int, programs: Programs, costs: Costs, transfers: Transfers) -> Timeline:
    """The timeline of a schedule, or of programs of actions and messages."""
    if programs is None:
        return simulate(parts, total, costs, transfers)
    given.refuse_ways(
        "an order that posts its messages takes no {}", "its own batches say when a stage waits", transfers
    )
    return rendezvous.replay(parts, programs, costs, transfers)


def _written(setup: Setup | None, schedule: str) -> dict[str, Any] | None:
    """The job of a model whose times these are, if they are."""
    if setup is None:
        return None
    from distsim.engine.steps.pass_times import job_written  # a schedule by itself loads no presets

    return job_written(setup, schedule)


def _named(
    name: str, stages: int | None, micro: int | None, chunks: int | None, times: PassTimes, hop: Time,
    bounds: dict[str, Any], others: dict[str, Any],
) -> tuple[Schedule, int, Programs]:  # fmt: skip
    """A named schedule, found for its bounds and loss; ``others`` are options that only a given order takes."""
    given.refuse("a named schedule takes no {}", "only a given order does", **others)
    return *named_order(stages, micro, name, chunks, times, hop, **bounds), None


def _given(
    order: str | Sequence[str], stages: int | None, micro: int | None, chunks: int | None,
    placed: dict[str, Any], others: dict[str, Any],
) -> tuple[Schedule, int, Programs]:  # fmt: skip
    """A schedule that the user wrote, checked, and its messages if it names them; ``others`` are options that only a
    named one takes."""
    given.refuse("a given order takes no {}", "only a named schedule does", **others)
    lines = given.lines(order)
    programs = None
    micro = None if micro is None else given.whole_number(micro, "micro-batches", "--micro 8")
    if rendezvous.is_program(lines):
        lines, programs = rendezvous.split(lines)
    parts = given.given_order(text.parse(lines), stages, chunks, **placed)
    return parts, order_check.check_complete(parts, micro), programs


def _of_model(
    model: str | Model | None, stages: int | None, micro: int | None, chunks: int | None, schedule: str | None,
    stated: tuple[Time | None, ...], job: dict[str, Any],
) -> tuple[Setup, PassTimes, Time]:  # fmt: skip
    """A model's setup, the times of its own stages, and of a hop between them."""
    if model is None:
        from distsim.specs.job import Job

        known = {*inspect.signature(pipeline).parameters, *Job.model_fields}
        refuse_unknown("pipeline", job, known, INSTEAD)
        told = (INSTEAD[name] for name in job if name in INSTEAD)
        raise DistsimError(f"{', '.join(job)}: only valid with model", *told, "e.g. model='llama-70b'")
    if any(one is not None for one in stated):
        raise DistsimError("model and times of passes, hops or the loss exclude each other", "leave one of them out")
    p = whole_number_given(stages, "stages", "--stages 4")
    m = whole_number_given(micro, "micro-batches", "--micro 8")
    from distsim.engine.steps.pass_times import model_setup, pass_times  # a schedule by itself loads no presets

    if own := [name for name in OF_THE_PIPELINE if name in job]:
        raise DistsimError(f"{', '.join(own)}: set by stages, micro and chunks", "leave it out")
    setup = model_setup(model, p, m, chunks, schedule, **job)
    found = pass_times(setup, schedule)
    forward, backward, input_gradient, weight_gradient = (found[name] for name in PASSES)
    return setup, (forward, backward, input_gradient, weight_gradient), found["hop"]


def _fusion(parts: Schedule, fused: str | None, fused_time: Time | None, program: bool) -> Schedule:
    """Apply the rule for fused pairs; refuse it where there are none."""
    if not isinstance(fused, (str, NoneType)) or fused not in (None, "atomic", "split"):
        raise DistsimError(f"fused is {fused!r}", "it is atomic (one result at the end) or split (half by half)")
    any_fused = any(action[0] == "FB" for order in parts.orders for action in short(order))
    if not any_fused:
        if fused is not None or fused_time is not None:
            raise DistsimError(f"schedule {parts.name} has no fused pairs", "leave out --fused and --fused-time")
        return parts
    if fused == "split":
        if program:
            raise DistsimError("an order that posts its messages runs fused pairs as written", "use atomic")
        if fused_time is not None:
            raise DistsimError("a split fused pair has no time of its own", "use atomic, or leave the time out")
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
