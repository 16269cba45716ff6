"""The correction that measured runs give (engine/corrections/correction.py), for a group of layouts at once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy

from distsim.engine.corrections.known_runs import evidence, newest_year, own_source
from distsim.engine.corrections.likeness import (
    DIFFERENCES,
    DOUBLINGS,
    Likeness,
    alike,
    bounded,
    likeness_of,
    shared,
)
from distsim.engine.corrections.own_runs import OWN, kind_of_stage
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.space import AGAIN, AXES, MESH, ZERO, Array, Group, along, fields
from distsim.specs.layout import ZERO_STAGES
from distsim.specs.timing import PLAIN

RECOMPUTATIONS = ("none", "selective", "full")


def corrections(group: Group) -> Array | None:
    """Factors on step times along all axes, but that of recomputation has three entries (``recomputation`` says which
    one holds); None where no run of the framework was measured."""
    setup = group.setup
    kin = kin_of(setup.framework, setup.compiled)
    known = evidence(kin)
    if not known:
        return None
    year = newest_year(known, setup.accelerator.name)
    one = replace(setup, layout=setup.layout.with_(**group.layout_at((0,) * AXES)))
    here = likeness_of(one, year, own_source(kin)).compared()
    inverse, small = _distinct_meshes(setup)
    places = {name: place for place, name in enumerate(DOUBLINGS)}
    numbers: list[Any] = list(here.numbers)
    for name, place in places.items():
        value = small.get(name, fields(setup.layout).get(name))
        if isinstance(value, numpy.ndarray):
            numbers[place] = _coordinates(one, year, name, place, value)
    runs: dict[Likeness, float] = defaultdict(float)
    for run in known:
        if run.state == PLAIN:
            runs[run.likeness] += run.weight
    factors = numpy.take(numpy.exp(bounded(_summed(runs, numbers, here.names))), inverse, axis=MESH)
    stages = numpy.broadcast_to(setup.layout.zero, (1, 1, setup.layout.zero.shape[ZERO], 1, len(inverse)))
    return numpy.take_along_axis(factors, stages, axis=ZERO)


def _summed(runs: dict[Likeness, float], numbers: list[Any], names: tuple[str, ...]) -> Array:
    """Logarithms of the factors, for each ZeRO stage and recomputation: of the runs that share those, and for the two
    that they share them with and all others, likeness is summed up first."""
    zero, again = list(DIFFERENCES).index("zero"), list(DIFFERENCES).index("recompute")
    far = list(DIFFERENCES.values())
    unlike = along([0, 1], ZERO) * far[zero] ** 2 + along([0, 1], AGAIN) * far[again] ** 2
    sums: dict[tuple[str, str], Any] = defaultdict(float)
    for run, weight in runs.items():
        squared: Any = 0.0
        for mine, theirs in zip(numbers, run.numbers, strict=True):
            squared = squared + (mine - theirs) * (mine - theirs)
        for place, (name, other_name) in enumerate(zip(names, run.names, strict=True)):
            if place not in (zero, again) and name != other_name:
                squared = squared + far[place] * far[place]
        named = run.names[zero], run.names[again]
        near = alike(numpy.sqrt(squared + unlike))
        sums[named] = sums[named] + weight * shared(near, run.names[-1] == names[-1] == OWN)
    total: Any = 0.0
    kinds = [kind_of_stage(str(one)) if names[-1] == OWN else str(one) for one in ZERO_STAGES]
    for (stage, word), found in sums.items():
        stages = numpy.take(found, [int(one != stage) for one in kinds], axis=ZERO)
        total = total + numpy.take(stages, [int(one != word) for one in RECOMPUTATIONS], axis=AGAIN)
    return total


def recomputation(group: Group) -> Array:
    """Which recomputation each choice along its axis is."""
    layout = group.setup.layout
    return numpy.where(layout.selective != 0, 1, numpy.where(layout.recompute_layers != 0, 2, 0)).ravel()


def _distinct_meshes(setup: Setup) -> tuple[Array, dict[str, Array]]:
    """Meshes that differ in what likeness looks at: which one each mesh is, and their fields."""
    layout = setup.layout
    count = layout.tp.shape[MESH]
    looked = ("tp", "cp", "ep", "dp")
    rows = numpy.stack([numpy.broadcast_to(getattr(layout, name).ravel(), count) for name in looked])
    _, first, inverse = numpy.unique(rows, axis=1, return_index=True, return_inverse=True)
    own = {name: getattr(layout, name)[..., first] for name in looked}
    return inverse.ravel(), {**own, "micro_batches": layout.micro_batches[..., first]}


def _coordinates(one: Setup, year: float, name: str, place: int, value: Array) -> Array:
    """The coordinate of each value of a field, each distinct value looked up once."""
    distinct, inverse = numpy.unique(value, return_inverse=True)
    found = [
        likeness_of(replace(one, layout=one.layout.with_(**{name: int(each)})), year).numbers[place]
        for each in distinct
    ]
    return numpy.array(found)[inverse].reshape(value.shape)
