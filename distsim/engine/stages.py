"""What each pipeline stage holds: blocks of the ledger, their parameters, micro-batches in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from distsim.arrays import Number
from distsim.engine.resolve import Setup
from distsim.formulas.in_flight import gpipe_in_flight, interleaved_in_flight, one_f_one_b_in_flight
from distsim.layers.ledger import Block, Operation, Parameter
from distsim.layers.network import embedding_block, head_block, layer_block, layer_kind, untied


@dataclass(frozen=True)
class Stage:
    """One pipeline stage of one data-parallel replica."""

    index: int
    embedding: Block | None
    layers: tuple[tuple[Block, int], ...]
    """Blocks of the layers with how many there are of each kind, in model order of first appearance."""
    head: Block | None
    in_flight: Number
    """Micro-batches whose activations the stage holds at its peak, in whole-stage units."""
    head_in_flight: Number = 1
    """Micro-batches whose logits are held: one where backward follows forward at once, all of them under GPipe."""

    @property
    def layer_count(self) -> int:
        """Layers of any kind on this stage."""
        return sum(count for _, count in self.layers)

    def operations(self) -> Iterator[tuple[Operation, int]]:
        """Every row with the number of times it occurs."""
        for block in (self.embedding, self.head):
            if block is not None:
                yield from ((operation, 1) for operation in block.operations)
        for block, count in self.layers:
            yield from ((operation, count) for operation in block.operations)

    def parameters(self) -> Iterator[tuple[Parameter, int]]:
        """Every parameter with the number of times it occurs."""
        for operation, count in self.operations():
            yield from ((parameter, count) for parameter in operation.parameters)


def stage_layer_indices(setup: Setup, stage: int) -> list[int]:
    """Indices of the layers on a stage; with chunks, stage r holds chunks r, r + pp, r + 2 pp …"""
    ends = [0, *accumulate(setup.chunk_layers)]
    chunks = range(stage, len(setup.chunk_layers), setup.layout.pp)
    return [layer for chunk in chunks for layer in range(ends[chunk], ends[chunk + 1])]


def in_flight(setup: Setup, stage: int) -> Number:
    """Micro-batches held at once by a stage under the job's schedule."""
    y = setup.layout
    if y.pp == 1:
        return 1
    if y.schedule == "gpipe":
        return gpipe_in_flight(y.micro_batches)
    if y.schedule in ("1f1b", "pipedream-flush"):
        return one_f_one_b_in_flight(y.micro_batches, y.pp, stage)
    if y.schedule == "interleaved-1f1b":
        return interleaved_in_flight(y.micro_batches, y.pp, stage, y.vpp)
    return _simulated_in_flight(y.schedule, y.pp, y.micro_batches, y.vpp)[stage]


def _simulated_in_flight(schedule: str, stages: int, micro: int, chunks: int) -> list[float]:
    from distsim.engine.pipeline import pipeline

    return list(pipeline(stages=stages, micro=micro, schedule=schedule, chunks=chunks).peak_in_flight)


def build_stages(setup: Setup) -> list[Stage]:
    """All stages, first to last."""
    ctx = setup.context()
    blocks: dict[str, Block] = {}
    last = setup.layout.pp - 1
    stages = []
    for index in range(setup.layout.pp):
        counts: dict[str, int] = {}
        for layer in stage_layer_indices(setup, index):
            kind = layer_kind(setup.model, layer)
            if kind not in blocks:
                blocks[kind] = layer_block(replace(ctx, layer=layer))
            counts[kind] = counts.get(kind, 0) + 1
        head = head_block(ctx) if index == last else None
        if head is not None and last == 0:
            head = untied(head, ctx)
        stages.append(
            Stage(
                index,
                embedding_block(ctx) if index == 0 else None,
                tuple((blocks[kind], count) for kind, count in counts.items()),
                head,
                in_flight(setup, index),
                setup.layout.micro_batches if setup.layout.pp > 1 and setup.layout.schedule == "gpipe" else 1,
            )
        )
    return stages
