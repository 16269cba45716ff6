"""Whether a search tried layouts that read an option, where none that it shows does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from distsim.engine.layouts.space import Group

WORDS = {"micro_batches": "micro-batches per step"}


def unread_notes(stated: Mapping[str, str], tried: Callable[[], Iterable[Group]], shown: str) -> list[str]:
    """A note for each option ``stated``, as typed, with the number of a layout that is one in all that are ``shown``
    and has to be more for the option to be read. ``tried`` gives the layouts again: it is asked only here, as few
    searches state such an option."""

    @cache
    def lost(name: str) -> bool:
        return any(beyond_one(group, name) for group in tried())

    return [_words(typed, name, lost(name), shown) for typed, name in stated.items()]


def beyond_one(group: Group, name: str) -> bool:
    """Whether a number is more than one in some valid layout of a group."""
    return bool((group.valid & (getattr(group.setup.layout, name) > 1)).any())


def _words(typed: str, name: str, lost: bool, shown: str) -> str:
    number = WORDS.get(name, name)
    if lost:
        return f"{typed} is read with {number} > 1 alone: such layouts were tried with it, and none is {shown}"
    return f"{typed} has no effect: {number} is 1 in every layout tried"
