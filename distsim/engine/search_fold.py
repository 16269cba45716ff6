"""Folds a group of layouts with the functions of ``distsim memory`` and ``distsim step``, then walks it in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy

from distsim.engine.compose import PARTS, compose, layout_numbers, stage_numbers
from distsim.engine.figures import Figures
from distsim.engine.memory import stage_parts, with_overhead
from distsim.engine.resolve import Setup
from distsim.engine.search_likeness import corrections, recomputation
from distsim.engine.search_prices import Prices
from distsim.engine.search_space import AGAIN, AXES, CHUNKS, MESH, MICRO, ZERO, Array, Group, fields
from distsim.engine.stages import Stage, build_stages
from distsim.engine.step import timing_of
from distsim.engine.work import work_of

BLOCK = 65_536
"""Layouts whose time and memory are added up at once: their arrays stay in the cache."""

Place = tuple[slice, ...]


class Block(NamedTuple):
    """Seconds per step and bytes on the fullest GPU of neighbouring layouts of a group."""

    group: Group
    start: tuple[int, ...]
    """Place of its first layout along each axis."""
    seconds: Array
    peak: Array
    valid: Array


@dataclass(frozen=True)
class Folded:
    """A group's ledger, folded over each part of the layout that matters to it, before parts are added up."""

    group: Group
    stages: list[dict[str, Any]]
    numbers: dict[str, Any]
    timing: Mapping[str, Any]
    memory: list[dict[str, Any]]
    factors: Array | None
    """What measured runs correct times by, per kind of recomputation."""
    recomputation: Array

    def block(self, place: Place) -> Block:
        """Time and memory of the layouts at a place."""
        setup = self.group.setup
        small = replace(setup, layout=setup.layout.with_(**cut(fields(setup.layout), place)))
        parts = compose([cut(stage, place) for stage in self.stages], cut(self.numbers, place), self.timing)
        seconds: Any = sum(parts[name] for name in PARTS)
        if self.factors is not None:
            kinds = self.recomputation[place[AGAIN]]
            every = (*place[:AGAIN], slice(None), *place[AGAIN + 1 :])
            seconds = seconds * numpy.take(cut({"": self.factors}, every)[""], kinds, axis=AGAIN)
        peak: Any = 0
        for stage in self.memory:
            categories, _ = with_overhead(small, cut(stage, place), Figures())
            peak = numpy.maximum(peak, sum(categories.values()))
        valid = cut({"": self.group.valid}, place)[""]
        shape = tuple(one.stop - one.start for one in place)
        whole = [numpy.broadcast_to(one, shape) for one in (seconds, peak, valid)]
        return Block(self.group, tuple(one.start for one in place), *whole)


def fold(group: Group, prices: Prices) -> Folded:
    """Fold traffic, computation and memory of a group."""
    setup = group.setup
    memory = [stage_parts(setup, stage, Figures())[0] for stage in distinct(build_stages(setup))]
    return Folded(
        group, stage_numbers(work_of(setup, prices)), layout_numbers(setup), timing_of(setup).model_dump(), memory,
        corrections(group), recomputation(group),
    )  # fmt: skip


def distinct(stages: list[Stage]) -> list[Stage]:
    """The first of all stages that hold the same layers: no later one has more micro-batches in flight."""
    found: dict[tuple[Any, ...], Stage] = {}
    for stage in stages:
        held = tuple((block.name, count) for block, count in stage.layers)
        found.setdefault((stage.embedding is None, held, stage.head is None), stage)
    return list(found.values())


def cut(values: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """The parts of arrays at a place; what has length one along an axis holds for all of it."""
    return {
        name: value[tuple(one if size > 1 else slice(None) for one, size in zip(place, value.shape, strict=True))]
        if isinstance(value, numpy.ndarray) and value.ndim == AXES else value
        for name, value in values.items()
    }  # fmt: skip


def blocks(group: Group, prices: Prices) -> Iterator[Block]:
    """All layouts of a group, block by block."""
    folded = fold(group, prices)
    for place in places(group):
        yield folded.block(place)


def places(group: Group) -> Iterator[Place]:
    """Where the blocks of a group are."""
    shape = group.shape
    steps = list(shape)
    for axis in (CHUNKS, MICRO, ZERO):
        others = int(numpy.prod(steps)) // steps[axis]
        steps[axis] = max(1, min(steps[axis], BLOCK // max(others, 1)))
    starts = numpy.ndindex(*(-(-size // step) for size, step in zip(shape, steps, strict=True)))
    for index in starts:
        first = [i * step for i, step in zip(index, steps, strict=True)]
        place = tuple(
            slice(start, min(start + step, size)) for start, step, size in zip(first, steps, shape, strict=True)
        )
        trimmed = without_edges(place, cut({"": group.valid}, place)[""])
        if trimmed is not None:
            yield trimmed


def without_edges(place: Place, valid: Array) -> Place | None:
    """A place without the meshes and ZeRO choices at its ends of which no layout is valid; None where none is."""
    whole = list(place)
    for axis in (ZERO, MESH):
        some = numpy.flatnonzero(valid.any(axis=tuple(other for other in range(AXES) if other != axis)))
        if not len(some):
            return None
        if valid.shape[axis] > 1:
            start = place[axis].start
            whole[axis] = slice(start + int(some[0]), start + int(some[-1]) + 1)
    return tuple(whole)


def setup_at(base: Setup, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job that has one found layout."""
    y = layout
    recompute = "selective" if y["selective"] else "full" if y["recompute_layers"] else "none"
    options: dict[str, Any] = {
        "tp": y["tp"], "pp": y["pp"], "cp": y["cp"], "ep": y["ep"], "dp": y["dp"], "vpp": y["vpp"], "zero": y["zero"],
        "micro_batch": y["micro_batch"], "global_batch": y["micro_batch"] * y["micro_batches"] * y["dp"],
        "recompute": recompute, "gpus": y["tp"] * y["pp"] * y["cp"] * y["dp"],
    }  # fmt: skip
    if y["recompute_layers"] > 0:
        options["recompute_layers"] = y["recompute_layers"]
    if y["zero"]:
        options["zero_group"] = y["zero_group"]
    if base.model.experts is not None:
        options["etp"] = y["etp"]
    if y["tp"] > 1:
        options["sequence_parallel"] = bool(y["sequence_parallel"])
    if y["pp"] > 1:
        options["schedule"] = y["schedule"]
    return options


def flags(options: Mapping[str, Any]) -> str:
    """Options as a user types them; what is None is left out."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words.append(f"--{flag} {value}")
    return " ".join(words)
