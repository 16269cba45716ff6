"""What a named schedule makes of a pipeline: the way of its chunks, and the micro-batches that each stage holds.

Closed forms where there are any, the event simulation elsewhere; for one layout or for arrays of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import NamedTuple, Self

from distsim.arrays import Number, each, maximum, where
from distsim.engine.timelines.groups import grouped
from distsim.engine.timelines.in_flight import flights_of
from distsim.formulas.schedule_forms import FLIGHTS, PEAKS, VERSIONS, Setting
from distsim.schedules.registry import SCHEDULES, build, find
from distsim.specs.layout import Layout

ANY_NUMBER = ("naive", "gpipe", "1f1b", "pipedream", "pipedream-2bw", "interleaved-1f1b", "looped-bfs", "zb-h1",
              "zb-h2", "zb-v")  # fmt: skip
"""Schedules whose closed forms hold for any number of stages and micro-batches; others are simulated, which also
refuses what they cannot run."""
STEADY = ("v-half", "v-min", "1f1b-v", "interleaved-zb", "dualpipe", "dualpipe-v")
"""Simulated schedules of which a further round of micro-batches, after ``ROUNDS`` rounds of as many as there are
stages, does not change what a stage holds (tests/test_schedule_shape.py)."""
ROUNDS = 4
"""Rounds of micro-batches after which those schedules repeat."""
ALL_FORWARDS_FIRST = ("gpipe", "looped-bfs")
FURTHER = 2.0**26
"""More than any count of micro-batches: what a second count is small beside where two are ordered by the first."""


class Flight(NamedTuple):
    """Micro-batches that a stage holds at a moment, in whole-stage units."""

    before: Number
    """Those whose input gradient is not done."""
    waiting: Number = 0
    """Those that wait for their weight gradient."""


class Flights(NamedTuple):
    """The moments of a stage of which one is its peak."""

    all: tuple[Flight, ...]
    split: tuple[Flight, ...] = ()
    """The same of those at which a backward begins that leaves weight gradients for later; empty where none does."""

    def together(self, other: Self) -> Self:
        """What two stages that share a device have in flight together."""
        return type(self)(corners((*self.all, *other.all)), corners((*self.split, *other.split)))


# A peak of before * (all that is kept) + waiting * (what weight gradients read) is at one of the moments that are first
# in these orders, whatever the two sizes are: tests/test_weight_passes.py
CORNERS: tuple[Callable[[Flight], Number], ...] = (
    lambda one: one.before * FURTHER + one.waiting,
    lambda one: (one.before + one.waiting) * FURTHER + one.before,
    lambda one: (one.before + one.waiting) * FURTHER + one.waiting,
    lambda one: (one.before + 2 * one.waiting) * FURTHER + one.before,
    lambda one: one.waiting * FURTHER + one.before,
)


def in_flight(schedule: Number, stages: int, micro: Number, chunks: Number, stage: int) -> Number:
    """Micro-batches that a stage holds at once, in whole-stage units."""
    if stages == 1:
        return 1
    return by_name(schedule, lambda name: _held(name, stages, micro, chunks, stage))


def splits(schedule: Number, stages: int) -> bool:
    """Whether weight gradients are made apart from input gradients, in any layout of an array."""
    return stages > 1 and any(name in SCHEDULES and SCHEDULES[name].splits for name in names_of(schedule))


def split_share(schedule: Number, stages: int, chunks: Number) -> Number:
    """Share of a stage's layers that one input gradient runs through where weight gradients are made apart; else 0."""
    if not splits(schedule, stages):
        return 0
    return by_name(schedule, lambda name: 1 / _possible(name, chunks) if splits(name, stages) else 0)


def flights(schedule: Number, stages: int, micro: Number, chunks: Number, stage: int) -> Flights:
    """What a stage holds of micro-batches; just those in flight where no weight gradient waits."""
    if not splits(schedule, stages):
        return Flights((Flight(in_flight(schedule, stages, micro, chunks, stage)),))
    found = {name: _flights(name, stages, micro, chunks, stage) for name in names_of(schedule)}

    def chosen(moments: Iterable[Flight]) -> Flight:
        known = dict(zip(found, moments, strict=True))
        before = by_name(schedule, lambda name: known[name].before)
        return Flight(before, by_name(schedule, lambda name: known[name].waiting))

    return Flights(*(tuple(map(chosen, zip(*parts, strict=True))) for parts in zip(*found.values(), strict=True)))


def corners(moments: Iterable[Flight]) -> tuple[Flight, ...]:
    """The few moments, of any number of them or of arrays, among which the peak is, whatever a tensor weighs."""
    known = tuple(moments)
    return tuple(_first(known, order) for order in CORNERS)


def _first(moments: Sequence[Flight], order: Callable[[Flight], Number]) -> Flight:
    found = moments[0]
    for one in moments[1:]:
        ahead = order(one) > order(found)
        found = Flight(where(ahead, one.before, found.before), where(ahead, one.waiting, found.waiting))
    return found


def weight_versions(schedule: Number, stages: int, micro: Number, stage: int) -> Number:
    """Versions of its weights that a stage keeps: one where all micro-batches see the same."""
    if not any(name in VERSIONS for name in names_of(schedule)):
        return 1
    setting = Setting(stages, micro)
    return by_name(schedule, lambda name: VERSIONS[name](setting, stage) if name in VERSIONS else 1)


def head_in_flight(schedule: Number, stages: int, micro: Number) -> Number:
    """Micro-batches whose logits are held: one where backward follows forward at once."""
    if stages == 1:
        return 1
    return by_name(schedule, lambda name: micro if name in ALL_FORWARDS_FIRST else 1)


def forwards_first(schedule: Number, stages: int) -> Number:
    """1 where no backward of a pipeline begins before all forwards of its stage are done, else 0."""
    return 0 if stages == 1 else by_name(schedule, lambda name: int(name in ALL_FORWARDS_FIRST))


def names_of(schedule: Number) -> list[str]:
    """The schedules of a layout, or of an array of layouts."""
    if isinstance(schedule, str):
        return [schedule]
    return sorted(set(schedule.ravel().tolist()))


def turns_back(schedule: Number) -> bool:
    """Whether the model runs down the stages and back up; layouts in one array all do, or none does."""
    kinds = {SCHEDULES[name].placement == "wave" for name in names_of(schedule) if name in SCHEDULES}
    assert len(kinds) <= 1
    return kinds == {True}


def both_ways(schedule: Number) -> bool:
    """Whether two copies of the model run through the stages in opposite directions."""
    return any(SCHEDULES[name].placement == "bidirectional" for name in names_of(schedule) if name in SCHEDULES)


def paired(schedule: Number, stages: int) -> Number:
    """1 where the forward of one micro-batch runs in one block with the backward of another, so that each one's expert
    exchanges hide behind the other's computation (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1)."""
    if stages == 1:
        return 0
    return by_name(schedule, lambda name: 1 if name in SCHEDULES and SCHEDULES[name].fused else 0)


def interleaved_share(layout: Layout) -> Number:
    """Share of a step's passes that run beside one of another micro-batch where interleaved 1F1B pairs a chunk's
    forward with another's backward: all but those that fill and drain the pipeline, pp micro-batches in the mean of
    the stages (2 (pp - rank - 1) + (vpp - 1) pp + 1 chunks; one micro-batch where nothing is pipelined). NVIDIA/
    Megatron-LM core/pipeline_parallel, get_pp_rank_microbatches and combined_1f1b; none without several chunks."""
    share = maximum(0.0, 1 - layout.pp / layout.micro_batches)
    if isinstance(layout.pp, int) and layout.pp == 1:
        return share
    chunks = (layout.vpp > 1) & (layout.schedule == "interleaved-1f1b")
    return where((layout.pp == 1) | chunks, share, paired(layout.schedule, layout.pp))


def by_name(schedule: Number, value: Callable[[str], Number]) -> Number:
    """A value of each layout by its schedule's name."""
    names = names_of(schedule)
    found = value(names[0])
    for name in names[1:]:
        found = where(schedule == name, value(name), found)
    return found


def _held(name: str, stages: int, micro: Number, chunks: Number, stage: int) -> Number:
    if name in ANY_NUMBER:
        return PEAKS[name](Setting(stages, micro, chunks), stage)
    return each(lambda m, v: _simulated(name, stages, m, v)[stage], micro, chunks)


def _flights(name: str, stages: int, micro: Number, chunks: Number, stage: int) -> Flights:
    if name in FLIGHTS:
        found = corners(starmap(Flight, FLIGHTS[name](Setting(stages, micro, chunks), stage)))
        return Flights(found, found)
    if not splits(name, stages):
        held = (Flight(_held(name, stages, micro, chunks, stage)),) * len(CORNERS)
        return Flights(held, held)

    def part(which: int, corner: int) -> Flight:
        parts = (lambda m, v: _counted(name, stages, m, v)[stage][which][corner].before,
                 lambda m, v: _counted(name, stages, m, v)[stage][which][corner].waiting)  # fmt: skip
        return Flight(*(each(one, micro, chunks) for one in parts))

    return Flights(*(tuple(part(which, corner) for corner in range(len(CORNERS))) for which in (0, 1)))


@functools.lru_cache(maxsize=1024)
def _counted(name: str, stages: int, micro: int, chunks: int) -> tuple[Flights, ...]:
    """What each stage has in flight, counted in the schedule's order; it holds whatever time the passes take.

    Of zb-auto that is its order for equal passes; others mostly hold one micro-batch before its input gradient that
    waits for its weight gradient in this one."""
    from distsim.schedules.repeats import short

    schedule = build(name, stages, few_rounds(name, stages, micro), _possible(name, chunks))

    def whole(moments: Iterable[tuple[int, int]]) -> tuple[Flight, ...]:
        return tuple(Flight(*(count / schedule.chunks for count in one)) for one in corners(starmap(Flight, moments)))

    return tuple(Flights(*map(whole, flights_of(short(order)))) for order in schedule.orders)


def few_rounds(name: str, stages: int, micro: int) -> int:
    """As many micro-batches of which a stage holds as much."""
    if name == "zb-v":
        return min(micro, 2 * stages)
    return min(micro, ROUNDS * stages) if name in STEADY and micro % stages == 0 else micro


def _possible(name: str, chunks: Number) -> Number:
    """As many chunks as are stated, or the fewest that the schedule can take: of arrays of layouts some have others."""
    return maximum(chunks, find(name).least)


@functools.lru_cache(maxsize=4096)
def _simulated(name: str, stages: int, micro: int, chunks: int) -> tuple[float, ...]:
    """Micro-batches held per stage, by the event simulation."""
    from distsim.engine.timelines.simulation import simulated

    micro, usual = few_rounds(name, stages, micro), _possible(name, chunks)
    group = grouped(name, stages, micro)
    return simulated(stages=stages, micro=micro, schedule=name, chunks=usual, **group).peak_in_flight
