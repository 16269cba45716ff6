"""Workers of a search on a Dask cluster that is already running."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from distsim.errors import DistsimError

Task = TypeVar("Task")
Made = TypeVar("Made")
PATIENCE = 10
"""Seconds until a scheduler has answered and has a worker."""


class DaskPool:
    """All threads of a cluster's workers; Dask itself repeats what a worker that dies had done or was doing."""

    def __init__(self, address: str) -> None:
        try:
            self.distributed: Any = importlib.import_module("distributed")
        except ImportError:
            raise DistsimError(
                "--dask needs the package distributed, which is not installed",
                "install the extra: pip install 'distsim[dask]'",
            ) from None
        if not re.fullmatch(r"(\w+://)?[^\s:]+:\d+/?", address):
            raise DistsimError(f"--dask {address} is not an address", "write e.g. --dask tcp://localhost:8786")
        self.address = address
        try:
            self.client = self.distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as problem:
            raise DistsimError(
                f"no Dask scheduler answers at {address} ({problem})",
                "start one with: dask scheduler, workers with: dask worker tcp://HOST:8786",
                "then e.g. --dask tcp://HOST:8786",
            ) from None
        self.workers = self._threads()

    def _threads(self) -> int:
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            self.close()
            raise DistsimError(
                f"the Dask cluster at {self.address} has no workers", f"start some: dask worker {self.address}"
            ) from None
        return sum(self.client.nthreads().values())

    def share(self, function: Callable[[Task], Made], tasks: Sequence[Task]) -> Iterator[tuple[int, Made]]:
        """Each task's place with what the function, of a module, makes of it, in the order in which they are done;
        fails where the same task kills one worker after another."""
        futures = self.client.map(_remote(), [pickle.dumps((function, task)) for task in tasks], pure=False)
        places = {future.key: index for index, future in enumerate(futures)}
        try:
            for future in self.distributed.as_completed(futures, loop=self.client.loop):
                yield places[future.key], self._result(future)
        finally:
            self.client.cancel(futures)

    def _result(self, future: Any) -> Any:
        try:
            return pickle.loads(future.result())
        except ImportError as problem:
            raise DistsimError(
                f"a worker of the Dask cluster at {self.address} cannot import what the search needs: {problem}",
                "install the same version of distsim on every worker",
            ) from None
        except self.distributed.KilledWorker:
            raise DistsimError(
                f"the same part of the search killed one worker after another of the Dask cluster at {self.address}",
                "most likely they ran out of memory: give each worker more",
            ) from None
        except (concurrent.futures.CancelledError, asyncio.CancelledError, OSError) as problem:
            raise DistsimError(
                f"the connection to the Dask cluster at {self.address} was lost ({type(problem).__name__})",
                "restart the cluster, then the search",
            ) from None

    def close(self) -> None:
        """Leave the cluster as it was found."""
        self.client.close()


def _remote() -> Callable[[bytes], bytes]:
    """What a worker does with a function and its task. It travels by value and takes bytes, as a scheduler that unpacks
    the graph may lack distsim; only workers need it."""

    def remote(packed: bytes) -> bytes:
        import pickle

        function, task = pickle.loads(packed)
        return pickle.dumps(function(task))

    return remote
