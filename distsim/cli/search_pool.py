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


@contextlib.contextmanager
def pool(jobs: int, dask: str | None) -> Iterator[Pool | None]:
    """The workers that ``--jobs`` or ``--dask`` ask for, or None for this process alone."""
    if dask is not None and jobs > 1:
        raise DistsimError(f"--jobs {jobs} and --dask {dask} are both given", "keep one of them")
    if dask is None:
        with processes(jobs) as local:
            yield local
        return
    from distsim.engine.layouts.dask import DaskPool

    with contextlib.closing(DaskPool(dask)) as workers:
        yield workers
