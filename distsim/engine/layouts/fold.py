"""Folds a group of layouts with the functions of ``distsim memory`` and ``distsim step``, then walks it in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy

from distsim import catalog
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.footprint import Footprint, Part, parts_of
from distsim.engine.layouts.likeness import corrections, recomputation
from distsim.engine.layouts.places import Place, along_zero, cut, places, sections, thin
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.space import AGAIN, ZERO, Array, Group
from distsim.engine.layouts.variants import unread
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.compose import compose, layout_numbers, stage_numbers
from distsim.engine.steps.work import Known, work_of
from distsim.specs.layout import Layout


class Block(NamedTuple):
    """Seconds per step and bytes on the fullest GPU of neighbouring layouts of a group."""

    group: Group
    start: tuple[int, ...]
    """Place of its first layout along each axis."""
    seconds: Array
    peak: Array
    valid: Array


class Section(NamedTuple):
    """Neighbouring ZeRO choices of a group, whose numbers have length one along axes on which they do not differ."""

    zero: slice
    stages: list[dict[str, Any]]
    numbers: dict[str, Any]
    factors: dict[str, Any]
    """What measured runs correct times by, per kind of recomputation."""


@dataclass(frozen=True)
class Folded:
    """A group's ledger, folded over each part of the layout that matters to it, before parts are added up."""

    group: Group
    footprint: Footprint
    sections: list[Section]
    """Those that shard parameters, those that do not; and last all together."""
    timing: Mapping[str, Any]
    recomputation: Array

    def block(self, place: Place) -> Block:
        """Time and memory of the layouts at a place."""
        zero = place[ZERO]
        part = next(one for one in self.sections if one.zero.start <= zero.start and zero.stop <= one.zero.stop)
        inside = (*place[:ZERO], slice(zero.start - part.zero.start, zero.stop - part.zero.start), *place[ZERO + 1 :])
        worked = [cut(stage, inside) for stage in part.stages]
        seconds: Any = compose(worked, cut(part.numbers, inside), self.timing, apart=False)["other"]
        if part.factors:
            kinds = self.recomputation[place[AGAIN]]
            every = (*inside[:AGAIN], slice(None), *inside[AGAIN + 1 :])
            seconds = seconds * numpy.take(cut(part.factors, every)[""], kinds, axis=AGAIN)
        return block_of(self.group, place, seconds, *self.footprint.at(place))


def block_of(group: Group, place: Place, *numbers: Array) -> Block:
    """A block of seconds, bytes, and which layouts are valid, that broadcast to its place."""
    shape = tuple(one.stop - one.start for one in place)
    seconds, peak, valid = (numpy.broadcast_to(one, shape) for one in numbers)
    return Block(group, tuple(one.start for one in place), seconds, peak, valid)


@dataclass
class Inside:
    """What of a group no network is asked for: what is known of its work, and memory."""

    work: Known = field(default_factory=Known)
    memory: list[Part] = field(default_factory=list)


Shared = dict[tuple[int, int], Inside]
"""The same of all groups of a search, by GPUs and number; for searches on clusters that differ in their network."""


def footprint_of(group: Group, inside: Inside) -> Footprint:
    """The memory of a group, unless it is known."""
    inside.memory = inside.memory or parts_of(group)
    return Footprint(group, inside.memory)


@catalog.settled()
def fold(group: Group, prices: Prices, inside: Inside | None = None) -> Folded:
    """Fold traffic, computation and memory of a group, the last two unless they are known."""
    setup, inside = group.setup, inside or Inside()
    stages = stage_numbers(work_of(setup, prices, prices.together, inside.work))
    numbers, factors = layout_numbers(setup), corrections(group)
    whole = Section(slice(0, group.shape[ZERO]), stages, numbers, {} if factors is None else {"": factors})
    parts = [
        Section(zero, [thin(stage, zero) for stage in stages], thin(numbers, zero), along_zero(whole.factors, zero))
        for zero in sections(group)
    ]  # fmt: skip
    timing = timing_of(setup).model_dump()
    return Folded(group, footprint_of(group, inside), [*parts, whole], timing, recomputation(group))


def blocks(group: Group, prices: Prices, inside: Inside | None = None) -> Iterator[Block]:
    """All layouts of a group, block by block."""
    folded = fold(group, prices, inside)
    for place in places(group):
        yield folded.block(place)


def untimed(group: Group, inside: Inside) -> Iterator[Block]:
    """The same where nobody asks for times, as none fits: they are infinite."""
    footprint = footprint_of(group, inside)
    for place in places(group):
        yield block_of(group, place, math.inf, *footprint.at(place))


def setup_at(base: Setup, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job that has one found layout."""
    sizes = Layout(**{name: layout[name] for name in ("tp", "pp", "cp", "dp", "micro_batch", "micro_batches")})
    recompute = "selective" if layout["selective"] else "full" if layout["recompute_layers"] else "none"
    options: dict[str, Any] = {
        **{name: layout[name] for name in ("tp", "pp", "cp", "ep", "dp", "vpp", "zero", "micro_batch")},
        "global_batch": sizes.global_batch,
        "recompute": recompute, "gpus": sizes.gpus,
    }  # fmt: skip
    if base.job.recompute_modules:
        options["recompute_modules"] = base.job.recompute_modules
    if layout["recompute_layers"] > 0:
        options["recompute_layers"] = layout["recompute_layers"]
    if layout["zero"]:
        options["zero_group"] = layout["zero_group"]
    if base.model.experts is not None:
        options["etp"] = layout["etp"]
    if layout["tp"] > 1:
        options["sequence_parallel"] = bool(layout["sequence_parallel"])
    if layout["pp"] > 1:
        options["schedule"] = layout["schedule"]
    return options | unread(layout)
