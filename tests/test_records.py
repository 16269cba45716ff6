"""The house's named tuples are those of the standard library, but quicker to make and to change."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from distsim.layers.ledger import Tensor
from distsim.records import NamedTuple


class Ours(NamedTuple):
    """Of the house."""

    name: str
    size: float = 2.0
    parts: tuple[str, ...] = ()

    @property
    def double(self) -> float:
        return 2 * self.size

    def named(self, name: str) -> Ours:
        return self._replace(name=name)


class Theirs(typing.NamedTuple):
    """Of the standard library."""

    name: str
    size: float = 2.0
    parts: tuple[str, ...] = ()


class Single(NamedTuple):
    only: int


class Derived(Ours):
    __slots__ = ()


ASKED: tuple[Callable[[Any], Any], ...] = (
    lambda kind: tuple(kind("a")),
    lambda kind: tuple(kind("a", parts=("b",), size=1.0)),
    lambda kind: kind("a")._asdict(),
    lambda kind: tuple(kind("a")._replace(size=3.0, name="b")),
    lambda kind: tuple(kind("a")._replace()),
    lambda kind: tuple(kind._make(["a", 1.0, ()])),
    lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__doc__ is not None),
    lambda kind: (kind("a") == kind("a"), kind("a") == ("a", 2.0, ()), kind("a") < kind("b"), hash(kind("a"))),
    lambda kind: repr(kind("a")).removeprefix(kind.__name__),
    lambda kind: (kind("a").size, kind("a")[1], len(kind("a")), isinstance(kind("a"), tuple)),
    lambda kind: tuple(copy.deepcopy(kind("a"))),
)


@pytest.mark.parametrize("asked", ASKED)
def test_they_answer_as_those_of_the_standard_library(asked: Callable[[Any], Any]) -> None:
    assert asked(Ours) == asked(Theirs)


WRONG: tuple[Callable[[Any], Any], ...] = (
    lambda kind: kind(),
    lambda kind: kind("a", 1.0, (), 4),
    lambda kind: kind("a", length=1.0),
    lambda kind: kind._make(["a"]),
    lambda kind: setattr(kind("a"), "name", "b"),
    lambda kind: setattr(kind("a"), "other", "b"),
)


@pytest.mark.parametrize("asked", WRONG)
def test_they_refuse_what_those_refuse(asked: Callable[[Any], Any]) -> None:
    with pytest.raises(Exception) as theirs:
        asked(Theirs)
    with pytest.raises(theirs.type) as ours:
        asked(Ours)
    if theirs.type is not AttributeError:
        assert str(ours.value).replace("Ours", "Theirs") == str(theirs.value)


def test_they_have_methods_and_travel() -> None:
    made = Ours("a", 4.0)
    assert (made.double, made.named("b")) == (8.0, Ours("b", 4.0))
    assert pickle.loads(pickle.dumps(made)) == made
    assert type(pickle.loads(pickle.dumps(made))) is Ours
    assert Single(3) == (3,)
    assert type(Derived("a")._replace(size=1.0)) is Derived
    with pytest.raises((ValueError, TypeError), match="length"):
        made._replace(length=1.0)  # type: ignore[call-arg]


def test_a_field_without_default_comes_before_those_with_one() -> None:
    with pytest.raises(TypeError, match="default"):

        class Odd(NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]


def test_the_ledger_has_them() -> None:
    assert Tensor.__bases__ == Ours.__bases__ != (tuple,)
