"""How ranks are arranged within a pipeline stage, and by which of them states may be sharded."""

from __future__ import annotations

from typing import NamedTuple

import numpy

from distsim.engine.jobs.layout import raised
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.bounds import Bounds
from distsim.specs.rules import divisors, most_imbalance, trades_heads, valid


class Mesh(NamedTuple):
    """How ranks are arranged, all but the pipeline."""

    tp: int
    cp: int
    ep: int
    etp: int
    dp: int
    sequence_parallel: int

    @property
    def sharers(self) -> int:
        """Ranks that hold the same dense parameters."""
        return self.dp * self.cp


def meshes(base: Setup, ranks: int, pp: int, global_batch: int, bounds: Bounds) -> list[Mesh]:
    """Arrangements of the ranks of one stage that the rules and bounds allow."""
    model = base.model
    experts = model.experts
    busiest = base.job.expert_imbalance or 1.0
    expert_degrees = [ep for ep in bounds.choices("ep", divisors(experts.count) if experts else [1])
                      if ep == 1 or busiest <= most_imbalance(model, ep)]  # fmt: skip
    flags = [int(word == "on") for word in bounds.words("sequence_parallel")]
    found = []
    for tp in bounds.choices("tp", divisors(ranks, model.heads)):
        for cp in bounds.choices("cp", divisors(ranks // tp, base.layout.seq)):
            dp = ranks // tp // cp
            if global_batch % dp or not bounds.allows("dp", dp) or not trades_heads(model, base.layout.cp_mode, tp, cp):
                continue
            widths = bounds.choices("etp", divisors(tp) if experts else [1])
            for ep in expert_degrees:
                found += [Mesh(tp, cp, ep, etp, dp, flag) for etp in widths for flag in (flags if tp > 1 else [0])]
    if not found:
        return []
    fields_ = {name: numpy.array(values) for name, values in zip(Mesh._fields, zip(*found, strict=True), strict=True)}
    allowed = valid(model, base.layout.with_(**fields_, pp=pp, vpp=1, zero_group=1))
    return [mesh for mesh, ok in zip(found, numpy.broadcast_to(allowed, len(found)), strict=True) if ok]


def shardings(sharers: int, bounds: Bounds, away: int = 0, least: int = 0) -> list[tuple[int, int]]:
    """(ZeRO stage, group) for so many data parallel ranks; a group of one rank shards nothing and is ZeRO 0, but for
    what leaves the GPU only from a stage on, ``away``, and where one rank is all there is and 0 was not asked. Several
    ranks share by the ``least`` stage anyway."""
    stages = [stage for stage in bounds.choices("zero", [0, 1, 2, 3]) if stage >= away]
    stages = list(dict.fromkeys(raised(stage, least, sharers) for stage in stages))
    if sharers == 1 and away:
        stages = stages[:1]
    found = [(0, sharers)] if 0 in stages and "zero_group" not in bounds.given else []
    alone = sharers == 1 and 0 not in stages
    sizes = bounds.choices("zero_group", divisors(sharers, sharers)[0 if alone else 1 :])
    return found + [(stage, size) for stage in stages if stage for size in sizes]
