"""Workers of a search on this machine: processes of their own, started afresh."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from distsim.engine.layouts.chunks import Chunk, Sifted, sift
from distsim.errors import DistsimError

MOST_DEATHS = 3
"""So often workers may die in one search before it is given up; their chunks are done again."""


class LocalPool:
    """A number of processes; what one was doing when it died is done again by others."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def run(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, Sifted]]:
        """Sift chunks; fails only where workers keep dying."""
        left = dict(enumerate(chunks))
        deaths = 0
        while left:
            try:
                yield from self._round(left)
            except BrokenProcessPool:
                self.close()
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise DistsimError(
                        f"processes of the search died {deaths} times; {len(left)} of {len(chunks)} chunks were left",
                        "most likely memory ran out: use fewer with --jobs, or leave it out",
                    ) from None

    def _round(self, left: dict[int, Chunk]) -> Iterator[tuple[int, Sifted]]:
        futures = {}
        try:
            futures = {self.executor.submit(sift, chunk): index for index, chunk in left.items()}
            for future in as_completed(futures):
                sifted = future.result()
                del left[futures[future]]
                yield futures[future], sifted
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
