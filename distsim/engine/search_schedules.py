"""Schedules without a closed form, simulated for the best few layouts that a search has found under the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from distsim.engine.search_best import Kept
from distsim.engine.search_bounds import SIMULATED, Bound, Bounds
from distsim.engine.search_ranking import Found
from distsim.engine.search_space import Group, groups
from distsim.engine.step import StepReport
from distsim.errors import DistsimError
from distsim.schedules.registry import SCHEDULES

SEEDS = 12
"""Best layouts, and as many that nearly fit, of which each schedule is tried."""
STAND_INS = ("1f1b", "interleaved-1f1b", "zb-v")
"""Schedules under which layouts are sought where only simulated ones are asked for."""
MOST_ACTIONS = 50_000
"""Passes of a pipeline that are simulated within some tens of milliseconds."""


def asked(bounds: Bounds) -> list[str]:
    """The schedules to simulate."""
    return [name for name in bounds.words("schedule") if name in SIMULATED]


def with_stand_ins(bounds: Bounds) -> Bounds:
    """Bounds under which layouts are sought for schedules that are only simulated."""
    return replace(bounds, given={**bounds.given, "schedule": Bound(",".join(STAND_INS), words=STAND_INS)})


def simulated(kept: Kept, bounds: Bounds) -> Iterator[Group]:
    """One group for each of the best layouts under each schedule that can run it; what a schedule refuses is left
    out."""
    for seed in seeds(kept):
        for name in asked(bounds):
            yield from _under(seed, name, bounds)


def seeds(kept: Kept) -> list[Found]:
    """Layouts with several stages that differ in more than their schedule, best first, then those that nearly fit."""
    chosen: list[Found] = []
    for found in (kept.best.found, kept.almost.found):
        own: dict[Any, Found] = {}
        for one in found:
            layout = one.layout
            if layout["pp"] > 1:
                rest = tuple(value for name, value in layout.items() if name not in ("schedule", "vpp"))
                own.setdefault((one.group.setup.precision.name, one.group.setup.offload, rest), one)
        chosen += list(own.values())[:SEEDS]
    return chosen


def _under(seed: Found, name: str, bounds: Bounds) -> Iterator[Group]:
    y, kind, setup = seed.layout, SCHEDULES[name], seed.group.setup
    vpp = max(y["vpp"], kind.default_chunks) if kind.most is None else kind.default_chunks
    if not bounds.allows("vpp", vpp):
        return
    word = "selective" if y["selective"] else "full" if y["recompute_layers"] else "none"
    again = {"recompute_layers": y["recompute_layers"] if y["recompute_layers"] > 0 else max(setup.stage_layers)}
    degrees = {key: y[key] for key in ("tp", "pp", "cp", "ep", "etp", "dp", "zero", "micro_batch")}
    numbers = {**degrees, "vpp": vpp, **(again if word == "full" else {})}
    if y["zero"]:
        numbers["zero_group"] = y["zero_group"]
    exact = {key: Bound(str(value), ((value, value),)) for key, value in numbers.items()}
    words = {"recompute": word, "schedule": name, "sequence_parallel": "on" if y["sequence_parallel"] else "off"}
    if y["tp"] == 1:
        del words["sequence_parallel"]
    exact |= {key: Bound(value, words=(value,)) for key, value in words.items()}
    gpus = y["tp"] * y["pp"] * y["cp"] * y["dp"]
    try:
        yield from groups(setup, gpus, seed.group.batch, Bounds(exact, bounds.excluded), (name,))
    except DistsimError:  # sizes that the schedule cannot take
        return


def simulated_seconds(report: StepReport) -> float | None:
    """The step with its pipeline run by the event simulation, each stage in its own time; None without a pipeline, or
    where it has too many passes."""
    from distsim.engine.step_timeline import timeline_of

    y = report.setup.layout
    if y.pp == 1 or 2 * y.pp * y.micro_batches * max(y.vpp, 1) > MOST_ACTIONS:
        return None
    return report.seconds - timeline_of(report).slack
