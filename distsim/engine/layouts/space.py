"""All layouts that the rules and bounds allow, as groups of arrays that the ledger can fold at once.

Arrays have five axes: schedule with model chunks (vpp), micro-batch, ZeRO stage and group, recomputation, and mesh (tp,
cp, ep, etp, dp, sequence parallelism). A field has length one along the axes that it does not depend on, so each part
of the ledger is computed once for all layouts that agree on it. What stays one number in a group (pp, the layers of
each stage) is what the ledger reads as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy

from distsim.arrays import ceil_div
from distsim.engine.exchanges.reach import domain_gpus
from distsim.engine.jobs.dispatch import dispatcher_named, queues_hold
from distsim.engine.jobs.drives import lowest_stage
from distsim.engine.jobs.graphs import able, ruled_out
from distsim.engine.jobs.profile import least_zero, padded_vocab
from distsim.engine.jobs.reference import whole_pairs
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tuning import widens_stream
from distsim.engine.layouts.bounds import CLOSED, Bounds
from distsim.engine.layouts.meshes import Mesh, meshes, shardings
from distsim.engine.layouts.recomputed import recomputations, selective_word
from distsim.engine.layouts.support import within
from distsim.engine.layouts.variants import with_batch
from distsim.engine.layouts.ways import Way, pipelines
from distsim.specs.layout import Layout
from distsim.specs.offloads import layers_leave
from distsim.specs.rules import divisors, interleaves
from distsim.specs.support_rules import supported

Array = Any
CHUNKS, MICRO, ZERO, AGAIN, MESH = range(5)
"""What varies along the axes of a group's arrays: chunks of layers, micro-batch, ZeRO, recomputation, degrees."""
AXES = MESH + 1  # in all
PART = 400_000
"""Elements of the largest array while the ledger is folded: a few dozen such arrays are alive."""
WASTE = 0.55
"""Meshes share a group while the shortest list of ZeRO choices is at least this share of the longest."""
WORTH = 50_000
"""Layouts whose sums take as long as folding one more group."""


class Group(NamedTuple):
    """Layouts that are folded together, and which of them are valid (arrays that broadcast to all axes)."""

    setup: Setup
    valid: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Choices along each axis."""
        return tuple(numpy.broadcast_shapes(self.valid.shape, *(
            field.shape for field in fields(self.setup.layout).values() if hasattr(field, "shape")
        )))  # fmt: skip

    @property
    def batch(self) -> int:
        """Sequences per step of all its layouts."""
        batch = self.setup.job.global_batch
        assert batch is not None
        return batch

    @property
    def layouts(self) -> int:
        """Valid layouts."""
        repeats = numpy.prod(self.shape) // self.valid.size
        return int(self.valid.sum()) * int(repeats)

    def layout_at(self, place: tuple[int, ...]) -> dict[str, Any]:
        """One layout as plain numbers."""
        found: dict[str, Any] = {}
        for name, field in fields(self.setup.layout).items():
            if hasattr(field, "shape"):
                field = field[tuple(min(i, n - 1) for i, n in zip(place, field.shape, strict=True))].item()
            found[name] = field
        return found

    def part(self, chosen: Mapping[int, Array]) -> Group:
        """Its layouts at some choices along some axes."""

        def cut(value: Any) -> Any:
            if isinstance(value, numpy.ndarray):
                for axis, places in chosen.items():
                    value = numpy.take(value, places, axis=axis) if value.shape[axis] > 1 else value
            return value

        layout = self.setup.layout.with_(**{name: cut(field) for name, field in fields(self.setup.layout).items()})
        setup = replace(self.setup, layout=layout, vocab_padded=cut(self.setup.vocab_padded))
        return Group(setup, cut(self.valid))

    def trimmed(self) -> Group:
        """Without choices of which no layout is valid: they would be folded for nothing."""
        chosen = {}
        for axis, size in enumerate(self.valid.shape):
            some = numpy.flatnonzero(self.valid.any(axis=tuple(other for other in range(AXES) if other != axis)))
            if len(some) < size:
                chosen[axis] = some
        return self.part(chosen) if chosen else self


def fields(layout: Layout) -> dict[str, Any]:
    """A layout's fields by name."""
    return layout._asdict()


def along(values: Sequence[int | str], axis: int, kind: Any = numpy.int64) -> Array:
    """Whole numbers, or words, along one axis."""
    shape = [1] * AXES
    shape[axis] = len(values)
    return numpy.array(values, dtype=kind).reshape(shape)


def one_or_along(values: Sequence[Any], axis: int, kind: Any = numpy.int64) -> Any:
    """The same, or the one value that all are."""
    return along(values, axis, kind) if len(set(values)) > 1 else values[0]


def groups(
    base: Setup, gpus: int, global_batch: int, bounds: Bounds, schedules: tuple[str, ...] = CLOSED
) -> Iterator[Group]:
    """All groups of a search with one batch, most pipeline stages last, under some of the ``schedules``."""
    base = with_batch(base, global_batch)
    for pp in bounds.choices("pp", [d for d in divisors(gpus, base.model.layers) if d <= base.model.layers]):
        able = within(bounds, base, pp)
        if not able.allows("pp", pp):
            continue
        found = meshes(base, gpus // pp, pp, global_batch, able)
        if not found:
            continue
        for ways, chunks in pipelines(base, pp, able, schedules):
            again = recomputations(base, int(ceil_div(base.model.layers, pp)), able)
            cells = len(ways) * len(divisors(global_batch)) * len(again)
            for part in bins(base, found, able, cells, least_zero(base.framework, base.precision.name, pp)):
                yield from _parts(base, pp, ways, chunks, part, global_batch, able)


Choices = list[tuple[Mesh, list[tuple[int, int]]]]


def bins(base: Setup, found: list[Mesh], bounds: Bounds, cells: int, least: int) -> Iterator[Choices]:
    """Meshes with their ZeRO choices, those together that have about as many, by data parallel ranks. Where experts
    shard like all else, the ledger merges their gradients with the others: such meshes are kept apart. So are choices
    that shard where those that do not have a wider residual stream. ``cells`` is how many layouts there are of each
    mesh and ZeRO choice, ``least`` the lowest stage of ZeRO."""
    experts = base.model.experts is not None
    away = lowest_stage(base.job, base.framework.supports)
    lists = {sharers: shardings(sharers, bounds, away, least) for sharers in {mesh.sharers for mesh in found}}
    kinds: tuple[tuple[bool, ...], ...] = ((False,), (True,))  # of choices by whether they shard
    if not widens_stream(base.precision, base.tuning):
        kinds = ((False, True),)
    for merged, kind in product((True, False), kinds):
        some = {sharers: [one for one in every if (one[0] > 0) in kind] for sharers, every in lists.items()}
        mine = [(m, some[m.sharers]) for m in found if (not experts or (m.ep == 1 and m.etp == m.tp)) == merged]
        split: list[Choices] = []
        for pair in sorted((pair for pair in mine if pair[1]), key=lambda pair: -len(pair[1])):
            if not split or len(pair[1]) < WASTE * len(split[-1][0][1]):
                split.append([])
            split[-1].append(pair)
        joined: list[Choices] = []
        for part in split:
            if joined and len(part) * (len(joined[-1][0][1]) - len(part[0][1])) * cells < WORTH:
                joined[-1] += part
            else:
                joined.append(part)
        yield from (sorted(part, key=lambda pair: -pair[0].dp) for part in joined)


def _parts(
    base: Setup, pp: int, ways: list[Way], chunks: tuple[int, ...], pairs: Choices, global_batch: int, bounds: Bounds
) -> Iterator[Group]:
    """One bin of meshes, cut so that no array grows too large."""
    setup = replace(base, chunk_layers=chunks, layout=base.layout.with_(pp=pp))
    every = recomputations(base, max(setup.stage_layers), bounds)
    gone = ruled_out(base.job, base.kernels, True, base.offload)
    tower = base.model.shown_tower
    reached = base.tower_kernels is not None and base.tower_kernels.recompute_reaches_inputs
    apart = base.tuning is not None or (tower is not None and tower.trains != "trained" and reached)
    if not (gone or apart):
        yield from _cut(setup, ways, every, pairs, global_batch, bounds)
        return
    without = replace(setup, kernels=base.kernels.model_copy(update=gone))
    for one, full in ((setup, False), (without, True)):  # whole layers are recomputed without what that rules out
        again = [kind for kind in every if (kind[1] != 0) == full]
        yield from _cut(one, ways, again, pairs, global_batch, bounds)


def _cut(
    setup: Setup, ways: list[Way], again: list[tuple[int, int]], pairs: Choices, global_batch: int, bounds: Bounds
) -> Iterator[Group]:
    """Groups of no more layouts than their arrays may hold."""
    least_dp = min(mesh.dp for mesh, _ in pairs)
    micros = bounds.choices("micro_batch", divisors(global_batch, global_batch // least_dp))
    micros = _divided(micros, pairs, global_batch)
    if "micro_batch" not in bounds.given or "micro_batch" in bounds.usual:
        micros = [size for size in micros if whole_pairs(setup.job, size)] or micros
    if not again or not micros:
        return
    parts = int(ceil_div(len(pairs) * len(ways) * len(micros) * len(again), PART))
    size = int(ceil_div(len(pairs), parts))
    for start in range(0, len(pairs), size):
        group = _group(setup, ways, micros, again, pairs[start : start + size], global_batch)
        layout = group.setup.layout
        supports, job = setup.framework.supports, setup.job
        runs = supported(supports, setup.model, layout) & able(job, layout)
        runs = runs & queues_hold(dispatcher_named(job, setup.framework, setup.kernels, setup.cluster), layout,
                                  setup.cluster)  # fmt: skip
        if job.names_framework:
            runs = runs & layers_leave(supports, setup.offload, layout, bool(job.offload_modules))
        if bounds.of_domain:
            runs = runs & (domain_gpus(group.setup) >= bounds.of_domain)
        group = group._replace(valid=_without(group, bounds) & runs)
        if group.valid.any():
            yield group.trimmed()


def _divided(micros: list[int], pairs: Choices, global_batch: int) -> list[int]:
    """The micro-batches into which the batch divides on at least one mesh; others would be folded for nothing."""
    shares = {mesh.dp for mesh, _ in pairs}
    return [micro for micro in micros if any(global_batch % (micro * dp) == 0 for dp in shares)]


def _group(
    setup: Setup, ways: list[Way], micros: list[int], again: list[tuple[int, int]], pairs: Choices, global_batch: int
) -> Group:
    mesh = {name: along(list(column), MESH) for name, column in
            zip(Mesh._fields, zip(*(mesh for mesh, _ in pairs), strict=True), strict=True)}  # fmt: skip
    stages, sizes, real = _sharded([choices for _, choices in pairs])
    micro = along(micros, MICRO)
    step = micro * mesh["dp"]
    count = numpy.maximum(global_batch // step, 1)
    schedules, vpps = zip(*ways, strict=True)
    selective, recomputed = zip(*again, strict=True)
    layout = setup.layout.with_(
        **mesh, vpp=one_or_along(vpps, CHUNKS), zero=stages, zero_group=sizes, micro_batch=micro, micro_batches=count,
        selective=one_or_along(selective, AGAIN), recompute_layers=one_or_along(recomputed, AGAIN),
        schedule=one_or_along(schedules, CHUNKS, str),
    )  # fmt: skip
    ok = (global_batch % step == 0) & real & interleaves(layout)
    vocab = padded_vocab(setup.framework, setup.model, layout.tp)
    return Group(replace(setup, layout=layout, vocab_padded=vocab), ok)


def _sharded(lists: list[list[tuple[int, int]]]) -> tuple[Array, Array, Array]:
    """ZeRO stages along their axis, the size of the sharding group along it and over meshes, and which are real: of
    meshes that have fewer sizes of one stage the first is repeated, so that each place along the axis has one stage."""
    stages = sorted({stage for choices in lists for stage, _ in choices})
    columns: list[Any] = []
    for stage in stages:
        own = [[size for one, size in choices if one == stage] for choices in lists]
        longest = max(map(len, own))
        columns += [(stage, [sizes[k] if k < len(sizes) else 0 for sizes in own]) for k in range(longest)]
    sizes = numpy.array([column for _, column in columns], dtype=numpy.int64)[None, None, :, None, :]
    usual = numpy.array([choices[0][1] for choices in lists])
    return along([stage for stage, _ in columns], ZERO), numpy.where(sizes > 0, sizes, usual), sizes > 0


def _without(group: Group, bounds: Bounds) -> Array:
    """The valid layouts less combinations that are excluded."""
    kept, layout = group.valid, group.setup.layout
    words: dict[str, Any] = {
        "schedule": lambda bound: numpy.isin(layout.schedule, bound.words),
        "sequence_parallel": lambda bound: numpy.where(
            layout.sequence_parallel, "on" in bound.words, "off" in bound.words),
        "recompute": lambda bound: numpy.where(
            layout.selective, selective_word(group.setup) in bound.words,
            numpy.where(layout.recompute_layers, "full" in bound.words, "none" in bound.words),
        ),
    }  # fmt: skip
    for rule in bounds.together:
        hit: Array = numpy.array(True)
        for name, bound in rule.items():
            if name in words:
                hit = hit & words[name](bound)
                continue
            hit = hit & bound.holds(layout.gpus if name == "gpus" else getattr(layout, name))
        kept = kept & ~hit
    return kept
