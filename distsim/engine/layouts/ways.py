"""Ways to run pipeline stages: schedules with numbers of chunks that put the same layers on each stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from distsim.arrays import ceil_div
from distsim.engine.jobs.placement import chunk_layers
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import head_stage, stage_layer_indices
from distsim.engine.layouts.bounds import Bounds
from distsim.errors import DistsimError
from distsim.layers.network import kinds_of_layers
from distsim.schedules.registry import SCHEDULES
from distsim.specs.layout import Layout
from distsim.specs.rules import divisors

Way = tuple[str, int]
"""A schedule and its chunks per stage."""
ENDS = 2
"""Embedding and head, either of which may have a chunk to itself."""


def pipelines(
    base: Setup, pp: int, bounds: Bounds, schedules: tuple[str, ...]
) -> Iterator[tuple[list[Way], tuple[int, ...]]]:
    """Ways to run pp stages that put the same layers on each, and the layers of the first way's chunks."""
    alike: dict[tuple[Any, ...], tuple[list[Way], tuple[int, ...]]] = {}
    kinds = kinds_of_layers(base.model)
    for vpp in bounds.choices("vpp", chunk_counts(base.model.layers, pp, "vpp" in bounds.given)):
        try:
            chunks = chunk_layers(None, base.model, Layout(pp=pp, vpp=vpp), base.framework)
        except DistsimError:
            continue
        for schedule in schedules_of(pp, vpp, bounds, schedules):
            setup = replace(base, layout=Layout(pp=pp, vpp=vpp, schedule=schedule), chunk_layers=chunks)
            held = tuple(tuple(kinds[layer] for layer in stage_layer_indices(setup, stage)) for stage in range(pp))
            alike.setdefault((head_stage(setup), held), ([], chunks))[0].append((schedule, vpp))
    yield from alike.values()


def chunk_counts(layers: int, pp: int, every: bool) -> list[int]:
    """Chunks per stage that may be tried: ``every`` number, or those that people choose: where stages divide layers,
    chunks do too; else each further chunk has to make the largest one smaller."""
    most = 1 if pp == 1 else (layers + ENDS) // pp
    if every:
        return list(range(1, most + 1))
    if layers % pp == 0:
        return divisors(layers // pp) if pp > 1 else [1]
    return [
        vpp for vpp in range(1, most + 1) if vpp == 1 or ceil_div(layers, pp * vpp) < ceil_div(layers, pp * (vpp - 1))
    ]


def schedules_of(pp: int, vpp: int, bounds: Bounds, schedules: tuple[str, ...]) -> list[str]:
    """Schedules that may run so many stages and chunks; one that takes any number of chunks is tried with several."""
    if pp == 1:
        return ["1f1b"] if vpp == 1 and bounds.allows("schedule", "1f1b") else []
    found = []
    for name in bounds.words("schedule"):
        kind = SCHEDULES[name]
        least = 2 if kind.most is None else kind.least
        if name in schedules and least <= vpp <= (kind.most or vpp):
            found.append(name)
    return found


def without_stages(base: Setup, gpus: int, bounds: Bounds) -> list[str]:
    """A note where no pipeline was tried because layers divide into none of the stages that were allowed."""
    wanted = [pp for pp in divisors(gpus) if 1 < pp <= base.model.layers and bounds.allows("pp", pp)]
    if not wanted or any(_divides(base, pp) for pp in wanted):
        return []
    return [
        f"no pipelines searched: {base.framework.name} needs equal stages, and no allowed number of stages on {gpus:,} "
        f"GPUs divides its {base.model.layers} layers; --framework megatron-core allows unequal ones"
    ]


def _divides(base: Setup, pp: int) -> bool:
    try:
        chunk_layers(None, base.model, Layout(pp=pp), base.framework)
    except DistsimError:
        return False
    return True
