"""Schedules without a closed form, simulated for the best few layouts that a search has found under the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.bounds import SIMULATED, Bound, Bounds
from distsim.engine.layouts.ranking import ALIKE, Found
from distsim.engine.layouts.space import Group, groups
from distsim.engine.layouts.ways import chunk_counts
from distsim.errors import DistsimError
from distsim.schedules.registry import SCHEDULES

SEEDS = 12
"""Best layouts, and as many that nearly fit, under whose degrees each schedule is tried."""
STAND_INS = ("1f1b", "interleaved-1f1b", "zb-v")
"""Schedules under which layouts are sought where only simulated ones are asked for."""


def asked(bounds: Bounds) -> list[str]:
    """The schedules to simulate."""
    return [name for name in bounds.words("schedule") if name in SIMULATED]


def with_stand_ins(bounds: Bounds) -> Bounds:
    """Bounds under which layouts are sought for schedules that are only simulated; they need a pipeline."""
    alone = {"pp": Bound("1", ((1, 1),))}
    given = {**bounds.given, "schedule": Bound(",".join(STAND_INS), words=STAND_INS)}
    return Bounds(given, (*bounds.excluded, alone))


def simulated(kept: Kept, bounds: Bounds, fitting: Callable[[], int]) -> Iterator[Group]:
    """Groups of the layouts worth trying under each schedule; what a schedule refuses is left out. Where none of them
    fits, as ``fitting`` counts, those that take ever less memory follow."""
    best, small = seeds(kept), thrifty(kept)  # as they are before any is added
    for name in asked(bounds):
        before = fitting()
        for one in best:
            yield from _under(one, name, bounds)
        if fitting() == before:
            for one in small:
                yield from _under(one, name, bounds)


def seeds(kept: Kept) -> list[Found]:
    """Layouts with several stages that differ in more than schedule, sharding and recomputation, best first; then
    those that nearly fit, or where there are none those that are nearest to it."""
    fit = [*kept.best.found, *kept.quickest.found]  # what is late is so under the schedule that it was found under
    near = [*kept.almost.found, *kept.slow_misses.found] or ([] if fit else kept.nearest.found)
    return [*_unlike(fit)[:SEEDS], *_unlike(near)[:SEEDS]]


def thrifty(kept: Kept) -> list[Found]:
    """Layouts from the most memory to the least, none of which is both slower and larger than another that is in time
    or late as it is."""
    return _unlike(sorted([*kept.front.found, *kept.slower.found], key=lambda one: -one.peak))


def _unlike(found: Iterable[Found]) -> list[Found]:
    own: dict[Any, Found] = {}
    for one in found:
        rest = tuple(value for name, value in one.layout.items() if name not in (*ALIKE, "schedule", "vpp"))
        if one.layout["pp"] > 1:
            setup = one.group.setup
            kind = (setup.precision.name, setup.offload, setup.job.recompute_modules)
            own.setdefault((kind, one.group.batch, rest), one)
    return list(own.values())


def _under(seed: Found, name: str, bounds: Bounds) -> Iterator[Group]:
    """The degrees and micro-batch of a layout under a schedule, with every sharding and recomputation asked for, and as
    many chunks as it may have: how much of them it needs depends on what the schedule holds."""
    layout, kind, setup = seed.layout, SCHEDULES[name], seed.group.setup
    numbers = {key: layout[key] for key in ("tp", "pp", "cp", "ep", "etp", "dp", "micro_batch")}
    gpus = layout["tp"] * layout["pp"] * layout["cp"] * layout["dp"]
    counts = chunk_counts(setup.model.layers, layout["pp"], "vpp" in bounds.given)
    for vpp in bounds.choices("vpp", counts if kind.most is None else [kind.default_chunks]):
        exact = {key: Bound(str(value), ((value, value),)) for key, value in {**numbers, "vpp": vpp}.items()}
        exact["schedule"] = Bound(name, words=(name,))
        only = Bounds({**bounds.given, **exact}, bounds.excluded)
        with contextlib.suppress(DistsimError):  # sizes that the schedule cannot take
            yield from groups(setup, gpus, seed.group.batch, only, (name,))
