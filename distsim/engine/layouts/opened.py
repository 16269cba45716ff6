"""The open setups of a search, and what of its lists the rest of the job does not run with."""

from __future__ import annotations

from collections.abc import Iterator

from distsim.engine.jobs.resolve import Setup
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.variants import variants


def opened(request: Request, gpus: int, refused: dict[str, list[str]] | None = None) -> Iterator[Setup]:
    """Setups whose layouts are open, one for each recipe, kind of offloading and list of modules."""
    return variants(request.job, gpus, request.precisions, request.offloads, request.overrides, request.bounds, refused)


def left_out(request: Request) -> list[str]:
    """Notes on recipes and kinds of offloading that the rest of the job does not run with."""
    refused: dict[str, list[str]] = {}
    if max(len(request.precisions), len(request.offloads)) > 1:
        for _ in opened(request, max(request.gpus), refused):
            pass
    return [f"{', '.join(named)} left out: {problem}" for problem, named in refused.items()]
