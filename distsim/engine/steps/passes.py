"""One micro-batch on one stage, laid out in time: what engine/steps/compose.py adds up, as segments of streams.

Seconds are those of the composition; this only says in which order they run. A forward goes through embedding, layers
and head, a backward the other way. Exposed exchanges follow the layers that need them; their hidden part overlaps
these layers. Shards are gathered during the layers before, gradients reduced during the layers after, as far as the
composition lets them hide; the rest is a wait of the same share before (gathers) or after (reductions) each layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distsim.engine.exchanges.flows import Flow

STREAMS = ("compute", "tp", "cp", "ep", "dp", "pp", "offload", "other")
"""What runs concurrently on one GPU and its links; ``other`` is always exposed: stalls, jitter, fixed time per step."""
NOTHING = 1e-12
"""Seconds below this are no work: rounding, or the tail of a smooth formula."""
GATHER, REDUCE, OFFLOAD = "gather parameters", "reduce gradients", "to and from host memory"


class Segment(NamedTuple):
    """One stream at work from ``start`` to ``end`` (seconds). The step waits for what is ``exposed``."""

    stream: str
    kind: str
    name: str
    start: float
    end: float
    exposed: bool = True
    flows: tuple[Flow, ...] = ()
    """The exchanges that it is a part of, together where they follow one another in an order that nobody knows."""
    micro: int | None = None


class Pass(NamedTuple):
    """One pass of a micro-batch; ``times`` of them, each ``apart`` seconds and ``step`` micro-batches behind the
    last."""

    kind: str
    chunk: int
    micro: int
    begin: float
    end: float
    times: int = 1
    apart: float = 0.0
    step: int = 0

    @property
    def last(self) -> float:
        """When the last of them ends."""
        return self.end + (self.times - 1) * self.apart

    def turn(self, turn: int) -> Pass:
        """One of them by itself."""
        moved = turn * self.apart
        return Pass(self.kind, self.chunk, self.micro + turn * self.step, self.begin + moved, self.end + moved)

    def turns(self, begin: float, end: float) -> tuple[int, int]:
        """Indices of the repeats that overlap the time from ``begin`` to ``end``: the first, and one past the last."""
        if self.times == 1:
            return 0, int(self.end > begin and self.begin < end)
        ahead, until = (begin - self.end) / self.apart, (end - self.begin) / self.apart
        first = 0 if ahead < 0 else min(self.times, math.floor(ahead) + 1)
        return first, min(self.times, math.ceil(max(0.0, until))) if until < self.times else self.times


class Unit(NamedTuple):
    """Embedding, some layers, or the head: seconds of computation by phase, and the exchanges they wait for."""

    name: str
    forward: float
    backward: float
    again: float
    weight: float
    """Part of backward that computes weight gradients."""
    exchanges: Mapping[str, Sequence[tuple[str, Flow, float]]]
    """By phase: stream, exchange, seconds."""
    hidden: Mapping[str, Sequence[tuple[str, Flow, float]]]
    """The same for exchanges that overlap the unit's own computation."""


class Beside(NamedTuple):
    """Traffic of one micro-batch that can overlap computation: its exposed and its hidden seconds."""

    exposed: float
    hidden: float
    flows: tuple[Flow, ...] = ()
    """What it is the time of, the longest first."""


class Track:
    """Segments in the making; ``now`` is where the stage is, ``trailing`` how much of that no other stage waits for."""

    def __init__(self) -> None:
        self.now = self.trailing = 0.0
        self.segments: list[Segment] = []

    def run(self, stream: str, kind: str, name: str, seconds: float, flows: tuple[Flow, ...] = ()) -> None:
        """The stage does this and nothing else."""
        if seconds > NOTHING:
            self.segments.append(Segment(stream, kind, name, self.now, self.now + seconds, True, flows))
            self.now += seconds

    def beside(self, stream: str, kind: str, name: str, start: float, seconds: float, flows: tuple[Flow, ...]) -> None:
        """Draw ``seconds`` of a stream's work from ``start``, while the stage does something else."""
        if seconds > NOTHING:
            self.segments.append(Segment(stream, kind, name, start, start + seconds, False, flows))

    def before(self, stream: str, kind: str, name: str, seconds: float, flows: tuple[Flow, ...]) -> None:
        """Draw ``seconds`` of a stream's work that ends where the stage's clock stands."""
        self.beside(stream, kind, name, self.now - seconds, seconds, flows)

    def within(self, room: float, exchanges: Sequence[tuple[str, Flow, float]]) -> None:
        """Streams work beside the last ``room`` seconds, each one exchange after another, as far as they go there."""
        free: dict[str, float] = {}
        for stream, flow, seconds in exchanges:
            start = free.get(stream, self.now - room)
            free[stream] = min(start + seconds, self.now)
            self.beside(stream, "exchange", flow.purpose, start, free[stream] - start, (flow,))


class Content(NamedTuple):
    """All that one micro-batch does on one chunk of a stage."""

    units: tuple[Unit, ...]
    gathers: tuple[Beside, Beside]
    """In forward and in backward."""
    reduces: Beside
    copies: tuple[Beside, Beside]
    """To and from host memory, in forward and in backward."""
    sends: tuple[Beside, Beside]
    """Activations to the next stage, gradients to the one before."""
    stall: float
    trailing: float
    """How much of backward's end no other stage waits for."""

    @property
    def seconds(self) -> tuple[float, float]:
        """Forward and backward without hidden or exposed sharding traffic."""
        return sum(map(_forward_seconds, self.units)), sum(map(_backward_seconds, self.units))


def forward_pass(content: Content) -> Track:
    """The forward of one micro-batch."""
    track, gather = Track(), content.gathers[0]
    whole = content.seconds[0]
    for unit in content.units:
        share = _forward_seconds(unit) / whole if whole else 0.0
        track.run("dp", "gather", GATHER, gather.exposed * share, gather.flows)
        track.run("compute", "forward", unit.name, unit.forward)
        track.within(unit.forward, unit.hidden["forward"])
        for stream, flow, seconds in unit.exchanges["forward"]:
            track.run(stream, "exchange", flow.purpose, seconds, (flow,))
        track.before("dp", "gather", GATHER, gather.hidden * share, gather.flows)
    _copy(track, content.copies[0])
    _send(track, content.sends[0])
    return track


def backward_pass(content: Content, weights: bool = True) -> Track:
    """The backward of one micro-batch, with or without the gradients of ``weights``."""
    track, gather, reduce = Track(), content.gathers[1], content.reduces
    whole = content.seconds[1]
    for unit in reversed(content.units):
        share = _backward_seconds(unit) / whole if whole else 0.0
        beside = share * (1 if weights or not share else 1 - unit.weight / _backward_seconds(unit))
        track.run("dp", "gather", GATHER, gather.exposed * share, gather.flows)
        track.beside("dp", "reduce", REDUCE, track.now, reduce.hidden * beside, reduce.flows)
        track.run("compute", "recompute", unit.name, unit.again)
        computed = unit.backward - (0 if weights else unit.weight)
        track.run("compute", "backward", unit.name, computed)
        track.within(unit.again + computed, unit.hidden["backward"])
        for stream, flow, seconds in unit.exchanges["backward"]:
            track.run(stream, "exchange", flow.purpose, seconds, (flow,))
        track.before("dp", "gather", GATHER, gather.hidden * beside, gather.flows)
    _send(track, content.sends[1])
    track.run("other", "stall", "stall", content.stall)
    track.run("dp", "reduce", REDUCE, reduce.exposed, reduce.flows)
    _copy(track, content.copies[1])
    track.trailing = content.trailing
    return track


def weight_pass(content: Content) -> Track:
    """Weight gradients alone, and what hides behind them."""
    track, gather, reduce = Track(), content.gathers[1], content.reduces
    whole = content.seconds[1]
    for unit in reversed(content.units):
        share = unit.weight / whole if whole else 0.0
        track.beside("dp", "reduce", REDUCE, track.now, reduce.hidden * share, reduce.flows)
        track.run("compute", "weight", unit.name, unit.weight)
        track.before("dp", "gather", GATHER, gather.hidden * share, gather.flows)
    return track


def _forward_seconds(unit: Unit) -> float:
    return unit.forward + sum(seconds for _, _, seconds in unit.exchanges["forward"])


def _backward_seconds(unit: Unit) -> float:
    return unit.backward + unit.again + sum(seconds for _, _, seconds in unit.exchanges["backward"])


def _copy(track: Track, copies: Beside) -> None:
    """Transfers from and to host memory: the part hidden behind the last work of a pass, then the exposed part."""
    track.before("offload", "offload", OFFLOAD, copies.hidden, copies.flows)
    track.run("offload", "offload", OFFLOAD, copies.exposed, copies.flows)


def _send(track: Track, send: Beside) -> None:
    name = send.flows[0].purpose if send.flows else "pipeline transfer"
    track.run("pp", "transfer", name, send.exposed, send.flows)
