"""How many processes of this machine share a command's work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from distsim.engine.processes import LocalPool

MOST = 8
"""Processes that a command starts unasked: more gain little where each has to load what all need. Assumed."""


def _jobs(text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option("--jobs", min=1, max=1024, metavar="<int>", help=text)
    return found


Jobs = Annotated[int, _jobs("processes that share the work")]
UsualJobs = Annotated[
    int | None, _jobs(f"processes that share the work [default: one per core, at most {MOST}, where there is enough]")
]


@contextlib.contextmanager
def processes(jobs: int | None, least: int = 0) -> Iterator[LocalPool | None]:
    """As many processes as ``--jobs`` asks for, or None for this one alone; unasked one per core, for ``least`` tasks
    or more."""
    workers = jobs or min(cores(), MOST)
    if workers == 1:
        yield None
        return
    from distsim.engine.processes import LocalPool

    with contextlib.closing(LocalPool(workers, least if jobs is None else 0)) as local:
        try:
            yield local
        except KeyboardInterrupt:
            local.stop()
            raise


def cores() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
