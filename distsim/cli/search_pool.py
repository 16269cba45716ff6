"""Where a search or a plan runs: in this process, in several, or a search on a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.engine.layouts.chunks import Pool
    from distsim.engine.layouts.processes import LocalPool

Jobs = Annotated[int, typer.Option("--jobs", min=1, max=1024, metavar="<int>", help="processes that share the work")]
Dask = Annotated[
    str | None, typer.Option("--dask", help="address of a Dask scheduler to share the work", show_default=False)
]


@contextlib.contextmanager
def processes(jobs: int) -> Iterator[LocalPool | None]:
    """As many processes as ``--jobs`` asks for, or None for this one alone."""
    if jobs == 1:
        yield None
        return
    from distsim.engine.layouts.processes import LocalPool

    with contextlib.closing(LocalPool(jobs)) as local:
        yield local


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
