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
    told = [f"{', '.join(named)} left out: {problem}" for problem, named in refused.items()]
    return [*filter(None, [each_apart(request.offloads)]), *told]


def each_apart(offloads: tuple[str, ...]) -> str:
    """A note on kinds of offloading that a comma parts, as other commands join them with one."""
    if len(offloads) < 2 or any(kind == "none" or "," in kind for kind in offloads):
        return ""
    apart, together = (between.join(offloads) for between in (",", "+"))
    return f"--offload {apart} tries each by itself: --offload {together} moves them together"
