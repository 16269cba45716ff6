"""Answers that are remembered: for the object that was asked about last, for equal arguments, while files stay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Part = TypeVar("Part")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def for_last(make: Callable[[Asked], Answer]) -> Callable[[Asked], Answer]:
    """``make``, whose answer is kept until another object is asked about. Objects are told apart by identity, so they
    need not be hashable, and the one that is known is held, so that no other can take its place. Object and answer are
    replaced as one, so that threads cannot take each other's."""
    known: tuple[Asked, Answer] | None = None

    @functools.wraps(make)
    def asked(about: Asked) -> Answer:
        nonlocal known
        last = known
        if last is None or last[0] is not about:
            known = last = (about, make(about))
        return last[1]

    return asked


def for_parts_of_last(make: Callable[[Asked, Part], Answer]) -> Callable[[Asked, Part], Answer]:
    """Decorator for a function of an object and one of its parts: answers about all parts are kept until another object
    is asked about. Parts are told apart by identity, and held."""

    @for_last
    def known(about: Asked) -> dict[int, tuple[Part, Answer]]:
        return {}

    @functools.wraps(make)
    def asked(about: Asked, part: Part) -> Answer:
        answers = known(about)
        if id(part) not in answers:
            answers[id(part)] = part, make(about, part)
        return answers[id(part)][1]

    return asked


def for_same(most: int) -> Callable[[Callable[[Asked], Answer]], Callable[[Asked], Answer]]:
    """A function of objects whose last ``most`` answers or so are kept. Objects are told apart by identity, and
    held."""

    def kept(make: Callable[[Asked], Answer]) -> Callable[[Asked], Answer]:
        known: dict[int, tuple[Asked, Answer]] = {}

        @functools.wraps(make)
        def asked(about: Asked) -> Answer:
            found = known.get(id(about))
            if found is None:
                if len(known) >= most:
                    known.clear()
                found = known[id(about)] = about, make(about)
            return found[1]

        return asked

    return kept


def for_equal(most: int) -> Callable[[Callable[[*Arguments], Answer]], Callable[[*Arguments], Answer]]:
    """A function whose last ``most`` answers are kept for arguments that are equal to known ones; those of arrays,
    which have no hash, are made anew."""

    def kept(make: Callable[[*Arguments], Answer]) -> Callable[[*Arguments], Answer]:
        known = functools.lru_cache(maxsize=most)(make)

        @functools.wraps(make)
        def asked(*arguments: *Arguments) -> Answer:
            try:
                return known(*arguments)
            except TypeError:
                return make(*arguments)

        return asked

    return kept


def while_same(
    state: Callable[[], Hashable], most: int = 1
) -> Callable[[Callable[[*Arguments], Answer]], Callable[[*Arguments], Answer]]:
    """A function whose last ``most`` answers are kept for equal arguments as long as the ``state`` of the files that
    they were read from is the same (``catalog.state``)."""

    def kept(make: Callable[[*Arguments], Answer]) -> Callable[[*Arguments], Answer]:
        @functools.lru_cache(maxsize=most)
        def known(read: Hashable, *asked: *Arguments) -> Answer:
            return make(*asked)

        @functools.wraps(make)
        def found(*asked: *Arguments) -> Answer:
            return known(state(), *asked)

        return found

    return kept
