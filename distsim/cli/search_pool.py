"""Where a search runs: in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from distsim.cli.workers import processes
from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.engine.counted import Pool

Dask = Annotated[
    str | None, typer.Option("--dask", help="address of a Dask scheduler to share the work", show_default=False)
]


ENOUGH_LAYOUTS = 20_000_000
"""Layouts of a search from which on processes are started unasked: some seven seconds of one core."""


@contextlib.contextmanager
def pool(jobs: int | None, dask: str | None) -> Iterator[Pool | None]:
    """The workers that ``--jobs`` or ``--dask`` ask for, those of a search that is large enough where neither is given,
    or None for this process alone."""
    if dask is not None and (jobs or 1) > 1:
        raise DistsimError(f"--jobs {jobs} and --dask {dask} are both given", "keep one of them")
    if dask is None:
        with processes(jobs, 1) as local:
            yield local
        return
    from distsim.engine.layouts.dask import DaskPool

    with contextlib.closing(DaskPool(dask)) as workers:
        yield workers
