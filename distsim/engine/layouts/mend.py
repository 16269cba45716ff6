"""What mends a search that finds nothing feasible: changes that make it fit, or GPUs that make it quick enough."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from distsim import catalog
from distsim.engine.advice.mend import Mended, mend
from distsim.engine.search import Choice, SearchReport, search
from distsim.errors import DistsimError

DOUBLINGS = 4
"""How often the GPUs that were asked for are doubled before the search gives up."""


class Quick(NamedTuple):
    """The fewest GPUs, doubled from what was asked, whose best layout is quick enough; and the quickest there is."""

    enough: Choice | None
    best: Choice | None

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
    """Search again with the same batch and twice, four times … as many GPUs until a step is short enough."""
    request = report.request
    job = request.job.model_copy(update={"global_batch": report.global_batch})
    free = replace(request, job=job, brief=True, top=1, within=math.inf, deadline=math.inf)
    best = report.nearest[0]
    for doubling in range(1, DOUBLINGS + 1):
        gpus = (max(request.gpus) << doubling,)
        try:
            found = search(replace(free, gpus=gpus)).best
        except DistsimError:  # so many do not divide the batch, or are more than the cluster has
            continue
        if found and found[0].report.seconds < best.report.seconds:
            best = found[0]
        if best.report.seconds <= report.kept.longest(report.global_batch):
            return Quick(best, best)
    return Quick(None, best)


def plain(mended: Mended | Quick | None) -> dict[str, Any]:
    """What mends an answer without layouts, as part of the JSON."""
    if mended is None:
        return {}
    if isinstance(mended, Quick):
        return {"quick_enough": mended.to_dict()}
    return {"mends": [one.to_dict() for one in mended.fitting]}
