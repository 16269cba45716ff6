"""Registers formulas with their unit and source, and shows them with numbers filled in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Formula(NamedTuple):
    """What ``--explain`` and ``docs/formulas.md`` know of a formula."""

    name: str
    unit: str
    source: str
    function: Callable[..., Any]


REGISTRY: dict[str, Formula] = {}


def formula(unit: str, source: str) -> Callable[[Function], Function]:
    """Register a pure function on numbers or arrays; the function itself is returned unchanged."""

    def register(function: Function) -> Function:
        REGISTRY[function.__name__] = Formula(function.__name__, unit, source, function)
        return function

    return register
