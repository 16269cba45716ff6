"""The units that a framework shards layer by layer: what one call gathers, and what one reduces."""

from __future__ import annotations

from collections.abc import Iterator

from distsim.arrays import Number
from distsim.engine.footprint.stored import Stored, Unit, block_tensors, operation_tensors, units_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.layers.ledger import Block
from distsim.layers.names import EMBEDDING_WEIGHT


def sharded_units(setup: Setup, stage: Stage) -> list[Unit]:
    """A stage's units: what belongs to no layer, whole or in parts, layers, and adapters where each is a unit."""
    units = units_of(stage)
    if setup.framework.traffic.one_unit:
        return [Unit("root", tuple(_all_tensors(units)), 1, root=True)]
    ends, layers = [unit for unit in units if unit.root], [unit for unit in units if not unit.root]
    if ends and (parts := _ends(setup, stage)):
        ends = parts
    if setup.tuning is None:
        return ends + layers
    rules, recomputed = setup.framework, stage.recomputed(setup.layout)
    if rules.adapters.units and not rules.adapters.in_flat_units:
        again = [*(0 for _ in ends), *recomputed]
        return [part for unit, times in zip(ends + layers, again, strict=True) for part in _apart(unit, times)]
    if rules.traffic.frozen_again and setup.kernels.recompute_holds != "output":
        layers = [unit._replace(again=times) for unit, times in zip(layers, recomputed, strict=True)]
    return ends + layers


def _all_tensors(units: list[Unit]) -> Iterator[Stored]:
    """What of each tensor all units of a kind have, as one flat tensor joins it."""
    for unit in units:
        for one in unit.tensors:
            yield one._replace(elements=one.elements * unit.count, rows=one.rows * unit.count)


def _ends(setup: Setup, stage: Stage) -> list[Unit]:
    """What belongs to no layer in units of its own; none where it is one unit."""
    rules, model = setup.framework.traffic, setup.model
    embedding, head = block_tensors(stage.embedding), block_tensors(stage.head)
    words = tuple(one for one in embedding if one.name == EMBEDDING_WEIGHT)
    others = tuple(one for one in embedding if one.name != EMBEDDING_WEIGHT)
    if model.family in rules.modules_apart:
        tied = model.tied_embeddings and stage.head is not None
        parts = [
            Unit("embedding", words, 1, root=True, gathers=(2 if tied else 1, 1), dropped=True),
            *(Unit("embedding", (one,), 1, root=True, dropped=True) for one in others),
            *(Unit("head", tensors, 1, root=True, dropped=True) for tensors in _by_operation(stage.head)),
        ]
    elif rules.tail_unit:
        tail = Unit("head", head, 1, root=True)
        first = Unit("embedding", words, 1, root=True, dropped=True)
        shared = [tail._replace(tensors=words + head)] if model.tied_embeddings else [first, tail]
        parts = [*shared, Unit("root", others, 1, root=True)]
    elif not model.tied_embeddings and model.vocab >= rules.ends_apart.get(model.family, model.vocab + 1):
        output, rest = (tuple(one for one in head if one.matrix is matrix) for matrix in (True, False))
        chunks = setup.kernels.loss_chunks
        parts = [
            Unit("embedding", embedding, 1, root=True),
            Unit("output", output, 1, root=True, gathers=(chunks, chunks)),
            Unit("root", rest, 1, root=True),
        ]
    else:
        return []
    return [unit for unit in parts if unit.tensors]


def _by_operation(block: Block | None) -> Iterator[tuple[Stored, ...]]:
    """The tensors of each operation of a block."""
    return (operation_tensors(one) for one in (block.operations if block is not None else ()))


def _apart(unit: Unit, again: Number) -> Iterator[Unit]:
    """What of a unit is frozen, and each tensor that trains as a unit of its own, which the forward of so many of them
    that are computed again gathers once more."""
    frozen = tuple(one for one in unit.tensors if not one.trains)
    if frozen:
        yield unit._replace(tensors=frozen)
    for one in unit.tensors:
        if one.trains:
            yield unit._replace(tensors=(one,), gathers=(1, 1 + again / unit.count))
