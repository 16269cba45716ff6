"""What each model chunk of a pipeline stage holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from distsim.engine.jobs.placement import chunk_layers
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import chunk_sizes
from distsim.engine.jobs.stages import Stage
from distsim.last import for_last
from distsim.layers.ledger import Block
from distsim.specs.layout import Layout


class Chunk(NamedTuple):
    """One chunk of a stage, or one of the two copies of a model on it."""

    layers: tuple[int, ...]
    """Layers of each kind that the stage has (``Stage.both``)."""
    heads: int


def chunks_held(setup: Setup, stage: Stage, schedule: str, vpp: int) -> tuple[Chunk, ...]:
    """The chunks of a stage in model order, under one schedule of those of a setup."""
    kinds = [id(block) for block, _ in stage.both().layers]

    def chunk(blocks: Sequence[Block], head: Block | None) -> Chunk:
        own = [id(block) for block in blocks]
        return Chunk(tuple(map(own.count, kinds)), int(head is not None))

    if stage.mirror is not None:
        return tuple(chunk(one.blocks, one.head) for one in (stage, stage.mirror))
    ends = chunk_ends(setup, stage, schedule, vpp)
    found = [chunk(stage.blocks[first:last], None) for first, last in pairwise(ends)]
    return (*found[:-1], found[-1]._replace(heads=int(stage.head is not None)))


def chunk_ends(setup: Setup, stage: Stage, schedule: str, vpp: int) -> list[int]:
    """Where the chunks of a stage begin and end among its layers."""
    ends = list(accumulate(chunk_sizes(_of_way(setup, schedule, vpp), stage.index), initial=0))
    assert ends[-1] == stage.layer_count
    return ends


def _of_way(setup: Setup, schedule: str, vpp: int) -> Setup:
    """The setup with one of its schedules and numbers of chunks, made once for all stages."""
    known = _ways_of(setup)
    if (schedule, vpp) not in known:
        known[schedule, vpp] = _made(setup, schedule, vpp)
    return known[schedule, vpp]


@for_last
def _ways_of(setup: Setup) -> dict[tuple[str, int], Setup]:
    """A setup in those of its ways that were asked for."""
    return {}


def _made(setup: Setup, schedule: str, vpp: int) -> Setup:
    """The setup in one of its ways; in arrays of layouts its chunks are the first's."""
    pp, chunks = setup.layout.pp, setup.chunk_layers
    if len(chunks) != pp * vpp:
        chunks = chunk_layers(None, setup.model, Layout(pp=pp, vpp=vpp), setup.framework)
        setup = replace(setup, mtp_chunk=None)
    return replace(setup, layout=Layout(pp=pp, vpp=vpp, schedule=schedule), chunk_layers=chunks)
