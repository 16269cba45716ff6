"""One step laid out in time: what every stage's compute and links do when, from what engine/steps/compose.py adds up.

Passes of micro-batches are run by the event simulation of the pipeline. What follows the last micro-batch starts when
the composition says that the pipeline has drained; where its closed form is an upper bound, the rest is ``slack``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distsim import catalog
from distsim.arrays import Number, product
from distsim.engine.exchanges.all_flows import network_of, price_of, stage_flows
from distsim.engine.exchanges.flows import Flow
from distsim.engine.exchanges.hidden import beside_each
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import folded
from distsim.engine.jobs.stages import Stage
from distsim.engine.steps.after import AfterLast, Hiding, after_last
from distsim.engine.steps.compose import layout_numbers, micro_batch, own_numbers, stage_numbers
from distsim.engine.steps.composed import ComposedStep
from distsim.engine.steps.content import Piece, content_of, pieces_of, priced_blocks
from distsim.engine.steps.pass_exchanges import Priced, longest_first
from distsim.engine.steps.passes import (
    REDUCE,
    Beside,
    Content,
    Pass,
    Segment,
    Track,
    backward_pass,
    forward_pass,
    weight_pass,
)
from distsim.engine.steps.work import LINKS, ONCE, kind_of, kinds_of, share_counted
from distsim.engine.timelines.groups import grouped
from distsim.engine.timelines.simulation import Pipeline, simulated
from distsim.schedules.repeats import timed

PASSES = {"F": forward_pass, "B": backward_pass, "I": lambda content: backward_pass(content, False), "W": weight_pass}
AHEAD, COPIED = "updated parameters", "gradients to host memory"
FINAL = "jitter, data loading, logging"
INTERLEAVED = "interleaved-1f1b"


@dataclass(frozen=True)
class Part:
    """Identical stages: their passes, and what follows the last micro-batch."""

    stages: tuple[int, ...]
    passes: tuple[dict[str, Track], ...]
    """Of each chunk in turn, or one that stands for all of them."""
    micro_batch_seconds: float
    reduces: Beside
    """Gradients that are reduced once, overlapping the last backward."""
    copies: Beside
    """Gradients that go to host memory once, overlapping it too."""
    tail: Track
    gathers: Beside
    """Parameters that the previous step has updated, gathered during the first forward."""
    flows: tuple[Flow, ...] = ()
    """All that a rank exchanges."""


@dataclass(frozen=True)
class StepTimeline:
    """A step's streams. Times of ``run`` and ``parts`` are the model's; ``scale`` corrects them by similar runs."""

    report: ComposedStep
    parts: tuple[Part, ...]
    run: Pipeline
    drained: float
    """When the composition lets the pipeline be empty."""
    scale: float

    @property
    def seconds(self) -> float:
        """The step time."""
        return self.report.seconds

    @property
    def slack(self) -> float:
        """How much longer the composed pipeline takes than the simulated one; negative where it takes less."""
        return (self.drained - self.run.makespan) * self.scale

    @property
    def squeeze(self) -> float:
        """What passes are shortened by to end with the composition, where that takes less than the simulation."""
        return min(1.0, self.drained / self.run.makespan)

    @property
    def slowest(self) -> int:
        """The stage that sets the pace."""
        return max(self.parts, key=lambda part: part.micro_batch_seconds).stages[0]

    @property
    def busiest(self) -> int:
        """The device that works longest; with two directions it holds parts of two stages."""
        return max(range(self.run.stages), key=lambda stage: (self.run.busy[stage], stage == self.slowest))

    def part_of(self, stage: int) -> Part:
        """The part of the timeline that a stage is in, with the stages identical to it."""
        return next(part for part in self.parts if stage in part.stages)

    def actions(self, stage: int, begin: float = -math.inf, end: float = math.inf) -> Iterator[Pass]:
        """Every pass of a stage that touches the time from ``begin`` to ``end``."""
        for one in self.told(stage):
            first, last = one.turns(begin, end)
            for turn in range(first, last):
                yield one.turn(turn)

    def told(self, stage: int) -> Iterator[Pass]:
        """The passes of a stage, repeating ones given once; fused ones as their two halves."""
        run = self.run
        for action, start, times, apart, step in timed(run.parts.orders[stage], run.timeline.starts[stage]):
            begin, end = self._at(start), self._at(start + run.costs.duration(action))
            again = times, self._at(apart), step
            if action[0] == "FB":
                middle = self._at(start + run.costs.forward[action[1]])
                yield Pass("F", action[1], action[2], begin, middle, *again)
                yield Pass("B", action[3], action[4], middle, end, *again)
            else:
                yield Pass(action[0], action[1], action[2], begin, end, *again)

    def segments(self, stage: int, begin: float = 0.0, end: float = math.inf) -> Iterator[Segment]:
        """What the streams of a stage do, as far as it touches the time from ``begin`` to ``end``."""
        for one in self.actions(stage, begin, end):
            yield from _within(self._of_pass(one), begin, end)
        yield from _within(self.after(stage), begin, end)

    def repeated(self, stage: int) -> Iterator[tuple[Segment, int, float]]:
        """All that the streams of a stage do, with how often and how far apart."""
        for one in self.told(stage):
            for segment in self._of_pass(one):
                yield segment, one.times, one.apart
        for segment in self.after(stage):
            yield segment, 1, 0.0

    def _of_pass(self, one: Pass) -> Iterator[Segment]:
        return self._moved(self._track(one.kind, one.chunk), one.begin, self.squeeze * self.scale, one.micro)

    def after(self, stage: int) -> Iterator[Segment]:
        """What the streams of a stage do outside its passes, most of it after the last."""
        part = self.part_of(stage)
        passes = list(self.told(stage))
        last, opened = max(one.last for one in passes), min(one.begin for one in passes)
        drained = self.drained * self.scale
        if part.reduces.hidden:
            first = last - part.reduces.hidden * self.scale
            yield Segment("dp", "reduce", REDUCE, first, last, False, part.reduces.flows)
        if part.copies.hidden:
            first = last - part.copies.hidden * self.scale
            yield Segment("offload", "offload", COPIED, first, last, False, part.copies.flows)
        if part.gathers.hidden:
            until = opened + part.gathers.hidden * self.scale
            yield Segment("dp", "gather", AHEAD, opened, until, False, part.gathers.flows)
        yield from self._moved(part.tail, drained, self.scale, None)
        final = drained + max(one.tail.now for one in self.parts) * self.scale
        if self.seconds > final:
            yield Segment("other", "constant", FINAL, final, self.seconds)

    def _moved(self, track: Track, start: float, scale: float, micro: int | None) -> Iterator[Segment]:
        for stream, kind, name, first, last, exposed, flows, _ in track.segments:
            yield Segment(stream, kind, name, start + first * scale, start + last * scale, exposed, flows, micro)

    def _at(self, seconds: float) -> float:
        return seconds * self.squeeze * self.scale

    def _track(self, kind: str, chunk: int) -> Track:
        both = len(self.run.parts.chains) > 1
        stage = chunk % self.run.stages if both else self.run.parts.placement[chunk]
        passes = self.part_of(stage).passes
        return passes[chunk // self.run.stages if len(passes) > 1 else 0][kind]


def _within(segments: Iterator[Segment], begin: float, end: float) -> Iterator[Segment]:
    return (one for one in segments if one.end > begin and one.start < end)


@catalog.settled()
def timeline_of(report: ComposedStep) -> StepTimeline:
    """Lay a predicted step out in time."""
    setup = report.setup
    layout, timing = layout_numbers(setup, report.correction.state), report.timing.model_dump()
    name = setup.layout.schedule if setup.layout.pp > 1 else "1f1b"
    chunks = setup.layout.vpp
    parts = []
    slowest = 0.0
    kinds, devices, stages = kinds_of(setup), stage_numbers(report.work), own_numbers(report.work)
    for alike, numbers, own in zip(kinds, devices, stages, strict=True):
        stage = alike[0]
        batch, visit = micro_batch(numbers, layout, timing), micro_batch(own, layout, timing)
        flows = _flows(setup, stage)
        after = after_last(numbers, timing, batch)
        reduces = _beside(after.reduce, flows["reduce"])
        gathers = _beside(after.ahead, [*flows["dp_ahead"], *flows["gather_once"]])
        copies = _beside(after.copied, flows["offload_once"])
        tail = _tail(after, reduces, copies, gathers, flows)
        every = tuple({id(flow): flow for some in flows.values() for flow, _ in some}.values())
        slowest = max(slowest, float(batch.seconds))
        priced = priced_blocks(setup, stage, timing)
        for some, pieces in _by_pieces(setup, alike, chunks):
            contents = [content_of(setup, stage, own, visit, timing, flows, priced, piece) for piece in pieces]
            passes = tuple(map(_passes, contents))
            parts.append(Part(some, passes, float(batch.seconds), reduces, copies, tail, gathers, every))
    scale = math.exp(report.correction.logarithm)
    drained = slowest * setup.layout.micro_batches + report.breakdown["pipeline_bubble"] / scale
    return StepTimeline(report, tuple(parts), _run(setup, name, chunks, parts), drained, scale)


def _by_pieces(setup: Setup, stages: Sequence[Stage], chunks: int) -> list[tuple[tuple[int, ...], tuple[Piece, ...]]]:
    """Stages grouped by the chunks that they hold: (indices of stages, their pieces)."""
    found: dict[tuple[Piece, ...], list[int]] = {}
    for stage in stages:
        found.setdefault(pieces_of(setup, stage, chunks), []).append(stage.index)
    return [(tuple(indices), pieces) for pieces, indices in found.items()]


def _flows(setup: Setup, stage: Stage) -> dict[str, list[Priced]]:
    """A stage's exchanges by kind of traffic, with the seconds per step that are counted of their prices."""
    network, exchange = network_of(setup), exchange_of(setup)
    found: dict[str, list[Priced]] = {kind: [] for kind in LINKS}
    for flow in stage_flows(setup, exchange, network, stage):
        kind = kind_of(flow)
        seconds = price_of(flow, network).seconds * product(flow.calls_per_step, share_counted(setup, kind))
        parts: list[tuple[str, Number]] = [(kind, 1)]
        if kind in ONCE:
            often, once, phase = ONCE[kind]
            each = beside_each(setup, exchange, flow.span.group, flow.role, phase)
            parts = [(often, each), (once, 1 - each)]
        for name, share in parts:
            if share:
                found[name].append((flow, float(seconds * share)))
    return found


def _passes(content: Content) -> dict[str, Track]:
    return {kind: make(content) for kind, make in PASSES.items()}


def _run(setup: Setup, name: str, chunks: int, parts: list[Part]) -> Pipeline:
    """The simulated pipeline of the stages' passes; transfers are inside the passes, as in the composition."""
    layout = setup.layout
    each = {stage: part.passes for part in parts for stage in part.stages}
    rounds = max(map(len, each.values()))
    scale = chunks / rounds
    chunked = [each[stage][turn] for turn in range(rounds) for stage in _in_turn(setup, turn, rounds)]
    times: dict[str, Any] = {
        field: [passes[kind].now * scale for passes in chunked]
        for field, kind in (("forward", "F"), ("backward", "B"), ("input_gradient", "I"), ("weight_gradient", "W"))
    }
    trailing = [passes["B"].trailing * scale for passes in chunked]
    shape: dict[str, Any] = {"stages": layout.pp, "micro": layout.micro_batches, "schedule": name, "chunks": chunks}
    if name == INTERLEAVED and layout.micro_batches > layout.pp and layout.micro_batches % layout.pp:
        shape["schedule"] = f"{INTERLEAVED}-megatron"
    shape |= grouped(shape["schedule"], layout.pp, layout.micro_batches)
    return simulated(**shape, **times, trailing=trailing if any(trailing) else None)


def _in_turn(setup: Setup, turn: int, rounds: int) -> range:
    """Stages in the order of the chunks of one turn, which a fold runs back up."""
    stages = range(setup.layout.pp)
    return stages[::-1] if rounds > 1 and turn % 2 and folded(setup) else stages


def _beside(one: Hiding, flows: list[Priced]) -> Beside:
    """What is left and what is hidden of exchanges."""
    return Beside(float(one.left), max(0.0, float(one.hidden)), longest_first(flows))


def _tail(
    after: AfterLast, reduces: Beside, copies: Beside, gathers: Beside, flows: Mapping[str, list[Priced]]
) -> Track:
    """What follows the last micro-batch, in order."""
    track, step, exchanged = Track(), float(after.step), flows["dp_step"]
    track.run("dp", "reduce", REDUCE, reduces.exposed, reduces.flows)
    track.run("offload", "offload", COPIED, copies.exposed, copies.flows)
    _shared(track, "tp", float(after.replicated), flows["tp_step"], flows["tp_step"])
    _shared(track, "dp", step, [priced for priced in exchanged if priced[0].role != "parameters"], exchanged)
    _shared(track, "dp", float(after.stated), flows["dp_stated"], flows["dp_stated"])
    track.run("compute", "optimizer", "optimizer step", float(after.optimizer))
    for flow, seconds in flows["offload_step"]:
        track.run("offload", "offload", flow.purpose, seconds, (flow,))
    _shared(track, "dp", step, [priced for priced in exchanged if priced[0].role == "parameters"], exchanged)
    track.run("dp", "gather", AHEAD, gathers.exposed, gathers.flows)
    return track


def _shared(track: Track, stream: str, seconds: float, some: list[Priced], whole: list[Priced]) -> None:
    """Some of the exchanges that ``seconds`` are for, each with its priced share."""
    total = sum(priced for _, priced in whole)
    for flow, priced in some:
        kind = "gather" if flow.role == "parameters" else "reduce"
        track.run(stream, kind, flow.purpose, seconds * priced / total if total else 0.0, (flow,))
