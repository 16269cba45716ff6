"""Loops that tell how far they have come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Show = Callable[[int, int], None]
"""Told how many of how many are done."""


def counted(items: Sequence[Item], show: Show | None) -> Iterator[Item]:
    """The items, one after the other; ``show`` hears of each that is done."""
    for done, item in enumerate(items, start=1):
        yield item
        if show is not None:
            show(done, len(items))
