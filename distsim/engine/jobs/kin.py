"""Whose measured runs and fitted numbers a framework is timed by: its preset says it (specs/timing.py, ``Kin``)."""

from __future__ import annotations

from distsim import catalog
from distsim.errors import DistsimError
from distsim.specs.framework import Framework
from distsim.specs.timing import NAMES, Kin


def kin_of(framework: Framework, compiled: bool = False) -> Kin:
    """By its own preset, and that of the framework that it is timed like, and so on; compiled, by that of the framework
    which its preset says that it is then."""
    if compiled and framework.compiled_like:
        return kin_of(catalog.load("frameworks", framework.compiled_like))
    mine, seen = _stated(framework), [framework.name]
    prior, theirs, like = dict(mine), dict[str, float](), framework
    while like.timed_like and like.timed_like != like.name:
        like = catalog.load("frameworks", like.timed_like)
        if like.name in seen:
            raise DistsimError(f"frameworks refer to each other by timed_like: {' -> '.join((*seen, like.name))}",
                               "let one of them name itself, or leave timed_like out")  # fmt: skip
        seen.append(like.name)
        theirs = {**_stated(like), **theirs}
        prior = {**_stated(like), **prior}
    differs = {name: value for name, value in mine.items() if theirs.get(name) != value}
    return Kin(framework.name, like.name, framework.family, _ordered(prior), _ordered(differs))


def _stated(framework: Framework) -> dict[str, float]:
    """The numbers of its prior that a preset states."""
    return {name: float(getattr(framework.prior, name)) for name in framework.prior.model_fields_set}


def _ordered(numbers: dict[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple((name, numbers[name]) for name in NAMES if name in numbers)
