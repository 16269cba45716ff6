"""Workers on this machine: processes of their own, started afresh, that share the work of a command."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from distsim.errors import DistsimError

Task = TypeVar("Task")
Made = TypeVar("Made")
MOST_DEATHS = 3
"""So often workers may die in one search before it is given up; their chunks are done again."""


class LocalPool:
    """A number of processes; what one was doing when it died is done again by others. Fewer than ``least`` tasks are
    done in this process, as starting others would take longer."""

    def __init__(self, workers: int, least: int = 0) -> None:
        self.workers, self.least = workers, least
        self._executor: ProcessPoolExecutor | None = None

    def share(self, function: Callable[[Task], Made], tasks: Sequence[Task]) -> Iterator[tuple[int, Made]]:
        """Each task's place with what the function, of a module, makes of it, in the order in which they are done;
        fails only where workers keep dying."""
        if len(tasks) < self.least:
            yield from enumerate(map(function, tasks))
            return
        left = dict(enumerate(tasks))
        deaths = 0
        while left:
            try:
                yield from self._round(function, left)
            except BrokenProcessPool:
                self.close()
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise DistsimError(
                        f"processes of --jobs died {deaths} times; {len(left)} of {len(tasks)} parts were unfinished",
                        "most likely they ran out of memory: lower --jobs, or leave it out",
                    ) from None

    def _round(self, function: Callable[[Task], Made], left: dict[int, Task]) -> Iterator[tuple[int, Made]]:
        futures = {}
        try:
            futures = {self.executor.submit(function, task): index for index, task in left.items()}
            for future in as_completed(futures):
                made = future.result()
                del left[futures[future]]
                yield futures[future], made
        finally:
            for future in futures:
                future.cancel()

    @property
    def executor(self) -> ProcessPoolExecutor:
        """The processes, which start as they are needed."""
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_ignore_interrupts)
        return self._executor

    def close(self) -> None:
        """End the processes."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; only the first is to answer it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
