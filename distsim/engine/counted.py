"""Loops that tell how far they have come, and workers that share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")
Show = Callable[[int, int], None]
"""Told how many of how many are done."""


def counted(items: Sequence[Item], show: Show | None) -> Iterator[Item]:
    """The items, one after the other; ``show`` hears of each that is done."""
    for done, item in enumerate(items, start=1):
        yield item
        if show is not None:
            show(done, len(items))


class Pool(Protocol):
    """Workers that share the tasks of a loop."""

    @property
    def workers(self) -> int:
        """How many they are."""

    def share(self, function: Callable[[Item], Made], tasks: Sequence[Item]) -> Iterator[tuple[int, Made]]:
        """Each task's place with what the function, of a module, makes of it, in the order in which they are done."""
