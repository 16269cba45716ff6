"""Changes that would make a job faster but do not fit memory, each with another one that frees it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from distsim.engine.advice.change import Change
from distsim.engine.advice.changes import degrees, recomputing, sharding
from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import MemoryReport, memory_of
from distsim.errors import DistsimError

MOST_PAIRS = 16
"""Pairs whose memory is computed: a few milliseconds each."""
T = TypeVar("T", bound="Kind")
OF_A_FAMILY = 3
"""Changes of a family that may free the memory, mildest first."""


class Kind(Protocol):
    """A change that would make the job faster."""

    @property
    def kind(self) -> str:
        """What it changes."""

    @property
    def words(self) -> str:
        """What it is called."""

    @property
    def options(self) -> dict[str, Any]:
        """What a user types; None for what is left out."""


def pairs(
    setup: Setup, too_big: Sequence[T], resolved: Callable[[dict[str, Any]], Setup | None]
) -> Iterator[tuple[T, str, dict[str, Any], MemoryReport]]:
    """Of changes that do not fit, the fastest first, those that fit with one that frees memory: with the words, options
    and memory of both. ``resolved`` is the job with some options, None where there is none."""
    freeing = list(_freeing(setup))
    tried = ((one, other) for one in _in_turns(too_big) for other in freeing)
    apart = (pair for pair in tried if pair[1].fields.keys().isdisjoint(pair[0].options))
    for one, other in itertools.islice(apart, MOST_PAIRS):
        options = {**one.options, **other.shown, **dict.fromkeys(other.without)}
        try:
            changed = resolved(options)
            memory = changed and memory_of(changed)
        except DistsimError:
            continue
        if memory and memory.fits:
            yield one, f"{one.words}, {other.words}", options, memory


def _in_turns(too_big: Sequence[T]) -> list[T]:
    """The first of each kind, then the second of each, and so on."""
    turns: dict[str, int] = {}
    turn_of = []
    for one in too_big:
        turns[one.kind] = turns.get(one.kind, -1) + 1
        turn_of.append(turns[one.kind])
    return [one for _, one in sorted(zip(turn_of, too_big, strict=True), key=lambda entry: entry[0])]


def _freeing(setup: Setup) -> Iterator[Change]:
    """Changes that leave the training as it is and free memory of activations or states."""
    families: dict[str, int] = {}
    for change in (*sharding(setup), *recomputing(setup), *degrees(setup)):
        families[change.family] = count = families.get(change.family, 0) + 1
        if count <= OF_A_FAMILY and change.family != "pp":
            yield change
