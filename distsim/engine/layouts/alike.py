"""How many layouts are alike to a found one: the same but for ZeRO, recomputation and sequence parallelism."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.fold import Block, fold
from distsim.engine.layouts.meshes import Mesh
from distsim.engine.layouts.places import cut
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.ranking import ALIKE, OWN, Found, Objective
from distsim.engine.layouts.space import MESH, Array, fields

AS_GOOD = 0.02
"""Layouts whose objective is no more than this share worse are as good as the found one."""
MOST_COUNTED = 20
"""Ranked layouts whose likes are counted: each may take some 20 ms."""
COLUMN_WORDS = {"zero": "zero", "zero_group": "group", "sequence_parallel": "seq.par.", "selective": "recompute",
         "recompute_layers": "recompute"}  # fmt: skip


class Alike(NamedTuple):
    """Feasible layouts that are alike to one: how many as good (within two per cent), in what, and how many at all."""

    near: int
    varies: tuple[str, ...]
    all: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the found layout itself is not counted."""
        return {"within": AS_GOOD, "near": self.near, "varies": list(self.varies), "all": self.all}


Name = tuple[int, tuple[int, ...]]
"""What tells a found layout from others (``Found.name``)."""


def alike(found: Sequence[Found], kept: Kept) -> dict[Name, Alike]:
    """The families of found layouts, evaluated again, those of one group together: calling an operation costs more than
    its arithmetic on so few."""
    groups: dict[int, list[Found]] = {}
    for one in found:
        groups.setdefault(id(one.group), []).append(one)
    prices = Prices()
    return {one.name: told for some in groups.values() for one, told in _of_group(some, kept, prices)}


def _of_group(found: Sequence[Found], kept: Kept, prices: Prices) -> Iterator[tuple[Found, Alike]]:
    """The families of found layouts of one group, one family's meshes after the other's."""
    group = found[0].group
    meshes = [_meshes(one) for one in found]
    own = {axis: numpy.unique([one.place[axis] for one in found]) for axis in OWN if axis != MESH}
    part = group.part({**own, MESH: numpy.concatenate(meshes)})
    folded = fold(part, prices)
    ends = [0, *itertools.accumulate(map(len, meshes))]
    for one, (first, last) in zip(found, itertools.pairwise(ends), strict=True):
        place = [slice(0, size) for size in part.shape]
        if part.shape[MESH] > 1:
            place[MESH] = slice(first, last)
        for axis, places in own.items():
            index = int(numpy.searchsorted(places, one.place[axis]))
            place[axis] = slice(index, index + 1)
        yield one, _family(one, folded.block(tuple(place)), cut(fields(part.setup.layout), tuple(place)), kept)


def _family(found: Found, block: Block, layout: Mapping[str, Any], kept: Kept) -> Alike:
    """One family, whose layouts a block holds, with their fields."""
    batch = found.group.batch
    feasible = block.valid & (block.peak <= kept.limit) & (block.seconds <= kept.longest(batch))
    gpus = int(numpy.max(found.group.setup.layout.gpus))
    key = kept.key if kept.key.name != "fewest-gpus" else Objective("throughput")  # as many GPUs: the quicker is better
    worst = key(found.seconds, found.peak, gpus) * (1 + AS_GOOD)
    near = feasible & (key(block.seconds, block.peak, gpus) <= worst)
    places = numpy.nonzero(near)
    varies = []
    for name in ALIKE:
        value = numpy.broadcast_to(layout[name], block.seconds.shape)[places]
        if len(value) and (value != value[0]).any() and COLUMN_WORDS[name] not in varies:
            varies.append(COLUMN_WORDS[name])
    return Alike(max(len(places[0]) - 1, 0), tuple(varies), max(int(feasible.sum()) - 1, 0))


def _meshes(found: Found) -> Array:
    """Where in its group the meshes are of the layouts alike to a found one."""
    group, layout = found.group, found.group.setup.layout
    meshes: Any = True
    for name in Mesh._fields:
        if name not in ALIKE:
            column = numpy.ravel(getattr(layout, name))
            meshes = meshes & (column == column[min(found.place[MESH], len(column) - 1)])
    return numpy.flatnonzero(numpy.broadcast_to(meshes, group.shape[MESH]))
