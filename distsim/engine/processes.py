"""Workers on this machine: processes of their own, started afresh, that share the work of a command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from distsim.errors import DistsimError

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

Task = TypeVar("Task")
Made = TypeVar("Made")
MOST_DEATHS = 3
"""So often workers may die in one search before it is given up; their chunks are done again."""


class NoProcesses(Exception):
    """This machine starts none: a limit is reached, or it has no shared memory."""


class LocalPool:
    """A number of processes; what one was doing when it died is done again by others. Where nobody asked for them
    (``least`` tasks are worth it), fewer tasks are done in this process, and so is the rest where processes do not
    start or keep dying."""

    def __init__(self, workers: int, least: int = 0) -> None:
        self.workers, self.least = workers, least
        self._executor: ProcessPoolExecutor | None = None

    def share(self, function: Callable[[Task], Made], tasks: Sequence[Task]) -> Iterator[tuple[int, Made]]:
        """Each task's place with what the function, of a module, makes of it, in the order in which they are done;
        fails only where workers were asked for and do not start or keep dying."""
        left = dict(enumerate(tasks))
        if len(tasks) >= self.least:
            yield from self._shared(function, left, len(tasks))
        for place, task in left.items():
            yield place, function(task)

    def _shared(
        self, function: Callable[[Task], Made], left: dict[int, Task], tasks: int
    ) -> Iterator[tuple[int, Made]]:
        """The same of what processes do, which is no longer ``left`` then."""
        from concurrent.futures.process import BrokenProcessPool  # a search that shares nothing does without

        deaths = 0
        while left and deaths < MOST_DEATHS:
            try:
                yield from self._round(function, left)
            except BrokenProcessPool:
                self.close()
                deaths += 1
                self._refuse(deaths == MOST_DEATHS, f"died {deaths} times", len(left), tasks)
            except NoProcesses as problem:
                self.close()
                deaths = MOST_DEATHS
                self._refuse(True, f"do not start ({problem})", len(left), tasks)

    def _refuse(self, failed: bool, what: str, left: int, tasks: int) -> None:
        if failed and not self.least:
            raise DistsimError(
                f"processes of --jobs {what}; {left} of {tasks} parts were left",
                "most likely memory ran out: use fewer with --jobs, or leave it out",
            ) from None

    def _round(self, function: Callable[[Task], Made], left: dict[int, Task]) -> Iterator[tuple[int, Made]]:
        from concurrent.futures import as_completed

        futures = {}
        try:
            futures = self._submitted(function, left)
            for future in as_completed(futures):
                made = future.result()
                del left[futures[future]]
                yield futures[future], made
        finally:
            for future in futures:
                future.cancel()

    def _submitted(self, function: Callable[[Task], Made], left: dict[int, Task]) -> dict[Future[Made], int]:
        try:
            return {self.executor.submit(function, task): place for place, task in left.items()}
        except (OSError, NotImplementedError, ImportError) as problem:
            raise NoProcesses(problem) from None

    @property
    def executor(self) -> ProcessPoolExecutor:
        """The processes, which start as they are needed."""
        if self._executor is None:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_ignore_interrupts)
        return self._executor

    def stop(self) -> None:
        """End the processes at once, in the midst of what they do."""
        import multiprocessing

        for process in multiprocessing.active_children():
            process.terminate()
        self.close()

    def close(self) -> None:
        """End the processes when each has done what it is at."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; only the first is to answer it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
