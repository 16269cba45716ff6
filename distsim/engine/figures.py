"""Figures that remember how they came about: label, formula, numbers filled in."""

from collections.abc import Callable
from typing import Any, NamedTuple

from distsim.arrays import Number


class Figure(NamedTuple):
    """One value with the formula that gave it; ``formula`` is a name in distsim.formula.REGISTRY, or empty."""

    label: str
    value: Number
    unit: str
    formula: str
    arguments: dict[str, Any]
    source: str = ""


def sources(*told: str) -> str:
    """Where a formula and its numbers come from, in one line."""
    return "; ".join(filter(None, told))


class Figures(list[Figure]):
    """A record of figures, in the order in which they were computed."""

    def use(self, label: str, function: Callable[..., Number], numbers: str = "", /, **arguments: Any) -> Number:
        """Call a registered formula, note it, and return its value; ``numbers`` is where its arguments come from."""
        from distsim.formula import REGISTRY

        value = function(**arguments)
        known = REGISTRY[function.__name__]
        self.append(Figure(label, value, known.unit, known.name, arguments, sources(known.source, numbers)))
        return value

    def note(self, label: str, value: Number, unit: str, source: str) -> Number:
        """Note a figure that is read from a preset or summed over the ledger, with where it comes from."""
        self.append(Figure(label, value, unit, "", {}, source))
        return value
