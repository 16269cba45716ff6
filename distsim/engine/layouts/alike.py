"""How many layouts are alike to a found one: the same but for ZeRO, recomputation and sequence parallelism."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.fold import fold
from distsim.engine.layouts.meshes import Mesh
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.ranking import ALIKE, OWN, Found, Objective
from distsim.engine.layouts.space import MESH, Group

AS_GOOD = 0.02
"""Layouts whose objective is no more than this share worse are as good as the found one."""
MOST_COUNTED = 20
"""Ranked layouts whose likes are counted: each takes some 20 ms."""
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


def alike(found: Found, kept: Kept, prices: Prices) -> Alike:
    """The family of a found layout, evaluated again by itself; families ask for many of the same ``prices``."""
    group = family(found)
    folded = fold(group, prices)
    block = folded.block(tuple(slice(0, size) for size in group.shape))
    feasible = block.valid & (block.peak <= kept.limit) & (block.seconds <= kept.longest(group.batch))
    gpus = int(numpy.max(group.setup.layout.gpus))
    key = kept.key if kept.key.name != "fewest-gpus" else Objective("throughput")  # as many GPUs: the quicker is better
    worst = key(found.seconds, found.peak, gpus) * (1 + AS_GOOD)
    near = feasible & (key(block.seconds, block.peak, gpus) <= worst)
    places = numpy.nonzero(near)
    varies = []
    for name in ALIKE:
        value = numpy.broadcast_to(getattr(group.setup.layout, name), block.seconds.shape)[places]
        if len(value) and (value != value[0]).any() and COLUMN_WORDS[name] not in varies:
            varies.append(COLUMN_WORDS[name])
    return Alike(max(len(places[0]) - 1, 0), tuple(varies), max(int(feasible.sum()) - 1, 0))


def family(found: Found) -> Group:
    """The part of a group that holds the layouts alike to a found one."""
    group, layout = found.group, found.group.setup.layout
    meshes: Any = True
    for name in Mesh._fields:
        if name not in ALIKE:
            column = numpy.ravel(getattr(layout, name))
            meshes = meshes & (column == column[min(found.place[MESH], len(column) - 1)])
    own: dict[int, Any] = {axis: numpy.array([found.place[axis]]) for axis in OWN}
    own[MESH] = numpy.flatnonzero(numpy.broadcast_to(meshes, group.shape[MESH]))
    return group.part(own)
