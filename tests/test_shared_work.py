"""Work that a search shares: computed once for all layouts that agree on what it depends on, and the same as alone."""

from __future__ import annotations

import numpy

from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.space import MICRO, Group, groups
from distsim.engine.layouts.variants import base_setup
from distsim.specs.job import Job


def groups_of(model: str, gpus: int, batch: int, **bounds: str) -> list[Group]:
    job = Job(model=model, gpu="h100-sxm", global_batch=batch)
    return list(groups(base_setup(job, gpus), gpus, batch, parse_bounds(dict(bounds), [])))


def test_every_micro_batch_of_a_group_is_some_meshs_own() -> None:
    found = groups_of("deepseek-v3", 512, 512, pp="1")
    assert len({group.shape[MICRO] for group in found}) > 1
    for group in found:
        others = tuple(axis for axis in range(group.valid.ndim) if axis != MICRO)
        assert numpy.broadcast_to(group.valid, group.shape).any(axis=others).all()
