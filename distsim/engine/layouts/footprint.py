"""Bytes on the fullest GPU of each layout of a group, with the functions of ``distsim memory``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy

from distsim.arrays import largest, total
from distsim.engine.figures import Figures
from distsim.engine.footprint.fragmentation import fragmentation_bytes, idle_blocks, slack_of
from distsim.engine.footprint.host import beyond_drives, beyond_host, node_bytes
from distsim.engine.footprint.in_flight_bytes import weighed
from distsim.engine.footprint.moment import heights
from distsim.engine.footprint.overhead import overhead_bytes
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.layouts.places import Place, cut, places, sections, thin
from distsim.engine.layouts.space import ZERO, Array, Group
from distsim.engine.memory import stage_moments

HOST, DRIVES, HELD = "host", "drives", "held"
"""What a stage's nodes hold of it, and what its GPU holds at all moments; all else are moments, of which the highest
is its peak."""


class Part(NamedTuple):
    """The stages of neighbouring ZeRO choices: bytes that have length one along axes on which they do not differ."""

    zero: slice
    stages: list[dict[str, Any]]


@dataclass(frozen=True)
class Footprint:
    """A group's memory, folded over each part of the layout that matters to it, before parts are added up."""

    group: Group
    parts: list[Part]
    """By sections of ZeRO choices, and last all together."""

    def at(self, place: Place) -> tuple[Array, Array]:
        """Bytes on the fullest GPU of the layouts at a place, and which of them are valid and have room in hosts."""
        zero = place[ZERO]
        part = next(one for one in self.parts if one.zero.start <= zero.start and zero.stop <= one.zero.stop)
        inside = (*place[:ZERO], slice(zero.start - part.zero.start, zero.stop - part.zero.start), *place[ZERO + 1 :])
        stages = [cut(stage, inside) for stage in part.stages]
        valid = cut({"": self.group.valid}, place)[""]
        for stage in stages:
            if HOST in stage:
                beyond = beyond_host(self.group.setup, stage.pop(HOST))
                valid = valid & ~numpy.asarray(beyond | beyond_drives(self.group.setup, stage.pop(DRIVES)))
        return largest([stage.pop(HELD) + largest(stage.values()) for stage in stages]), valid

    def fits(self, limit: float) -> bool:
        """Whether any layout needs no more than so many bytes."""
        every = (self.at(place) for place in places(self.group))
        return any(bool(((peak <= limit) & valid).any()) for peak, valid in every)


def parts_of(group: Group) -> list[Part]:
    """The memory of a group."""
    every = (weighed(group.setup, *alike) for alike in distinct(build_stages(group.setup)))
    stages = [_memory(group.setup, stage) for stage in every]
    parts = [Part(zero, [thin(stage, zero) for stage in stages]) for zero in sections(group)]
    return [*parts, Part(slice(0, group.shape[ZERO]), stages)]


def _memory(setup: Setup, stage: Stage) -> dict[str, Any]:
    """A stage's peak in parts: what ZeRO shards, and the moments that grow with micro-batches in flight or do not."""
    figures = Figures()
    parts, held, saved, moments = stage_moments(setup, stage, figures)
    hosts = {}
    if setup.offload:
        needed = node_bytes(setup, held, saved.leaving, stage.in_flight)
        hosts = {HOST: needed.memory, DRIVES: needed.drives}
    tops = heights(moments, slack_of(setup), idle_blocks(setup, stage, held, parts))
    return {
        **hosts,
        HELD: total(*parts.values(), overhead_bytes(setup, stage, figures),
                    fragmentation_bytes(setup, parts["buffers"], figures)),
        **{f"moments {place}": top for place, top in enumerate(tops)},
    }  # fmt: skip


def distinct(stages: list[Stage]) -> list[list[Stage]]:
    """Stages by what they hold: the same layers in the same order (which tells those that are computed again)."""
    found: dict[tuple[Any, ...], list[Stage]] = {}
    for stage in stages:
        one = stage.both()
        layers = tuple((block.name, count) for block, count in one.layers)
        found.setdefault((one.embedding is None, one.order, layers, one.head is None), []).append(stage)
    return list(found.values())
