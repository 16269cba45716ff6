"""What mends a search that finds nothing feasible: changes that make it fit, or GPUs that make it quick enough."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.advice.mend import Mended, mend
from distsim.engine.layouts.choice import Choice
from distsim.engine.layouts.report import Request, SearchReport
from distsim.engine.layouts.search import search
from distsim.errors import DistsimError
from distsim.specs.limits import LARGEST_CLUSTER

PATIENCE = 2
"""The GPUs that were asked for are doubled no further after so many doublings that gained nothing: one may only not
divide the batch."""


class Quick(NamedTuple):
    """The fewest GPUs whose best layout is quick enough, doubled from what was asked and then narrowed by whole nodes;
    the quickest there is; and the most GPUs that were searched."""

    enough: Choice | None
    best: Choice | None
    most: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, None where no number of GPUs that was tried is quick enough."""
        gpus = None if self.enough is None else int(self.enough.report.setup.layout.gpus)
        return {"gpus": gpus, "seconds": None if self.best is None else self.best.report.seconds}


def mends(report: SearchReport) -> Mended | Quick | None:
    """What mends an answer without layouts; None where there is nothing to mend or no miss to start from."""
    if report.best or not report.nearest or report.interrupted:
        return None
    return quick(report) if report.fitting else mend(report.nearest[0].report.memory, margin=report.request.margin)


@catalog.settled()
def quick(report: SearchReport) -> Quick:
    """Search again with the same batch and twice, four times … as many GPUs until a step is short enough, or more of
    them gain nothing."""
    request = report.request
    job = request.job.model_copy(update={"global_batch": report.global_batch})
    free = replace(request, job=job, brief=True, top=1, within=math.inf, deadline=math.inf)
    best = report.nearest[0]
    longest = report.kept.longest(report.global_batch)
    gpus, idle = max(request.gpus), 0
    while idle < PATIENCE and 2 * gpus <= LARGEST_CLUSTER:
        gpus *= 2
        found = _best(free, gpus)
        idle += 1
        if found is not None and found.report.seconds < best.report.seconds:
            best, idle = found, 0
        if best.report.seconds <= longest:
            fewest = _narrowed(free, gpus // 2, best, longest)
            return Quick(fewest, fewest, gpus)
    return Quick(None, best, gpus)


def _narrowed(free: Request, few: int, enough: Choice, longest: float) -> Choice:
    """The fewest whole nodes found between so many GPUs, which are too few, and those of a layout that is quick
    enough."""
    node = enough.report.setup.cluster.gpus_per_node
    low, high = few // node, int(enough.report.setup.layout.gpus) // node
    while high - low > 1:
        middle = (low + high) // 2
        found = _best(free, middle * node)
        if found is not None and found.report.seconds <= longest:
            enough, high = found, middle
        else:
            low = middle
    return enough


def _best(free: Request, gpus: int) -> Choice | None:
    """The best layout of so many GPUs; None where they do not divide the batch, or are more than the cluster has."""
    try:
        found = search(replace(free, gpus=(gpus,))).best
    except DistsimError:
        return None
    return found[0] if found else None


def plain(mended: Mended | Quick | None) -> dict[str, Any]:
    """The mends of an answer without layouts, as plain data for ``--json``."""
    if mended is None:
        return {}
    if isinstance(mended, Quick):
        return {"quick_enough": mended.to_dict()}
    return {"mends": [one.to_dict() for one in mended.fitting]}
