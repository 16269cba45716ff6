"""The one way distsim says that an input is wrong: the numbers that clash, the rule, the mend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

DID_YOU_MEAN = "did you mean"
"""How a hint begins that names what is like a wrong word."""


class DistsimError(Exception):
    """Wrong input. ``problem`` names what is wrong with the numbers in it, ``hints`` what would be right."""

    def __init__(self, problem: str, *hints: str, where: str = "") -> None:
        self.problem = problem
        self.hints = tuple(hint for hint in hints if hint)
        self.where = where
        super().__init__(self.text())

    def __reduce__(self) -> tuple[Callable[..., DistsimError], tuple[str, ...]]:
        """So that one of another process is whole in this."""
        return partial(type(self), where=self.where), (self.problem, *self.hints)

    @property
    def near(self) -> str:
        """The hint that names what may have been meant; empty where nothing is like it."""
        return next((hint for hint in self.hints if hint.startswith(DID_YOU_MEAN)), "")

    def text(self) -> str:
        """The message as the terminal shows it, one hint per indented line."""
        head = f"{self.where}: {self.problem}" if self.where else self.problem
        return "\n".join([head, *(f"  {hint}" for hint in self.hints)])


SHORT, LEAST_OF_SHORT = 8, 0.65
"""Words up to so many letters are like any other by chance; they must be so much like it, or its beginning."""


def nearest(
    name: str,
    known: Iterable[str],
    count: int = 3,
    least: float = 0.5,
    stands_for: Mapping[str, str | None] | None = None,
) -> list[str]:
    """The known names most like ``name``, best first, those that it begins before others; ``least`` is how like they
    must be. ``stands_for`` has aliases with what they stand for, of which each is named once."""
    import difflib

    by_lower = {one.lower(): one for one in known}
    word = name.lower()
    alike = difflib.get_close_matches(word, by_lower, len(by_lower) or 1, least)
    if len(word) <= SHORT and least < LEAST_OF_SHORT:
        sure = set(difflib.get_close_matches(word, alike, len(alike) or 1, LEAST_OF_SHORT))
        alike = [one for one in alike if one in sure or one.startswith(word)]
    best = [by_lower[one] for one in sorted(alike, key=lambda one: not one.startswith(word))]
    same = stands_for or {}
    once = {same.get(one) or one: one for one in reversed(best)}  # the first of each stays
    return [one for one in best if once[same.get(one) or one] == one][:count]


def did_you_mean(
    name: str, known: Iterable[str], least: float = 0.5, stands_for: Mapping[str, str | None] | None = None
) -> str:
    """A hint line with the nearest names, or an empty string when none is near."""
    near = nearest(name, known, least=least, stands_for=stands_for)
    return f"{DID_YOU_MEAN} {', '.join(near)}?" if near else ""


def slipped(name: str, meant: str) -> bool:
    """Whether one slip of the keys makes a name of another: a letter more, less, wrong, or two in the wrong order."""
    short, long = sorted((name.lower(), meant.lower()), key=len)
    if [one for one in short if one.isdigit()] != [one for one in long if one.isdigit()] or len(long) - len(short) > 1:
        return False
    at = next((index for index, (one, other) in enumerate(zip(short, long, strict=False)) if one != other), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    turned = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return turned or short[at + 1 :] == long[at + 1 :]
