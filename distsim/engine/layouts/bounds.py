"""What a search may choose: values and ranges of each dimension, and combinations that are left out."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distsim.arrays import Number
from distsim.errors import DistsimError, did_you_mean
from distsim.other_choices import choice_meant
from distsim.schedules.names import of_step, schedule_meant
from distsim.specs.flags import flag
from distsim.specs.limits import LARGEST_BATCH, LARGEST_DEGREE

NUMBERS = ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "zero_group", "micro_batch", "recompute_layers")
USUAL = ("1f1b", "gpipe", "interleaved-1f1b")
"""Schedules that are tried where none are named."""
CLOSED = (*USUAL, "looped-bfs", "zb-h1", "zb-h2", "zb-v")
"""Schedules whose time and memory have closed forms for any number of micro-batches, and so of layouts."""
SIMULATED = ("interleaved-zb", "v-half", "v-min", "1f1b-v", "dualpipe", "dualpipe-v", "chimera", "hanayo")
"""Schedules that are simulated for the best few layouts of those above."""
WORDS: dict[str, tuple[str, ...]] = {
    "recompute": ("none", "selective", "modules", "full"),
    "schedule": (*CLOSED, *SIMULATED),
    "sequence_parallel": ("on", "off"),
}
"""Choices in words; ``all`` stands for all of them."""
DIMENSIONS = (*NUMBERS, *WORDS)


@dataclass(frozen=True)
class Bound:
    """Ranges (both ends included; None where one has no end) or words; ``text`` is what the user wrote."""

    text: str
    ranges: tuple[tuple[int, int | None], ...] = ()
    words: tuple[str, ...] = ()

    def allows(self, value: int | str) -> bool:
        """Whether a value is within."""
        if isinstance(value, str):
            return value in self.words
        return bool(self.holds(value))

    def holds(self, value: Number) -> Any:
        """Whether a number is within, or a mask of an array's."""
        return functools.reduce(operator.or_, (_within(value, low, high) for low, high in self.ranges))


def _within(value: Any, low: int, high: int | None) -> Any:
    return value >= low if high is None else (value >= low) & (value <= high)


def parse_bound(name: str, text: str) -> Bound:
    """``8``, ``1..8``, ``1,2,4``, ``4..`` or words."""
    parts = [part.strip().lower() for part in text.split(",")]
    option = f"{flag(name)} {text}"
    if not all(parts):
        names = "an empty value" if any(parts) else "no value"
        raise DistsimError(f"{option!r} names {names}", "write e.g. 8, 1..8 or 1,2,4")
    if name in WORDS:
        parts = list(WORDS[name]) if parts == ["all"] else parts
        parts = [of_step(part) for part in parts] if name == "schedule" else parts
        meant = schedule_meant if name == "schedule" else choice_meant
        for part in parts:
            if part not in WORDS[name]:
                raise DistsimError(
                    f"{option}: {part!r} is not a valid choice", meant(part, WORDS[name]),
                    f"choices: {', '.join(WORDS[name])}",
                )  # fmt: skip
        return Bound(text, words=tuple(dict.fromkeys(parts)))
    return Bound(text, tuple(_range(name, option, part) for part in parts))


def _largest(name: str) -> int:
    return LARGEST_BATCH if name == "global_batch" else LARGEST_DEGREE


def _range(name: str, option: str, part: str) -> tuple[int, int | None]:
    least, most = 0 if name == "zero" else 1, _largest(name)
    low, dots, high = part.partition("..")
    if part == ".." or not all(end.isdigit() for end in (low or high, high or low)):
        raise DistsimError(f"{option}: {part!r} is neither a whole number nor a range", "write e.g. 8, 1..8 or 1,2,4")
    first = int(low or least)
    last = first if not dots else int(high) if high else None
    if last is not None and first > last:
        raise DistsimError(f"{option}: the range {part} is empty", f"write {last}..{first}")
    if not least <= first <= most:
        raise DistsimError(f"{option}: {first:,} is out of range", f"valid: {least} to {most:,}")
    return first, last


def doubling(name: str, text: str) -> tuple[int, ...]:
    """Counts as listed, or doubling through a range, its end included."""
    numbers: list[int] = []
    option, most = f"{flag(name)} {text}", _largest(name)
    for low, high in parse_bound(name, text).ranges:
        if high is None:
            raise DistsimError(f"{option} has no end", f"write e.g. {flag(name)} {low}..{min(low * 8, most)}")
        if high > most:
            raise DistsimError(f"{option}: {high:,} is out of range", f"valid: at most {most:,}")
        while low < high:
            numbers.append(low)
            low *= 2
        numbers.append(high)
    return tuple(dict.fromkeys(numbers))


@dataclass(frozen=True)
class Bounds:
    """The bounds of all dimensions; one that has none is free. Each exclusion is a set of bounds that hold together."""

    given: dict[str, Bound] = field(default_factory=dict)
    excluded: tuple[dict[str, Bound], ...] = ()
    usual: frozenset[str] = frozenset()
    """Those of ``given`` that nobody stated: the space that a plan looks at."""
    runs: Callable[[str, int | str], bool] | None = None
    """Whether the framework runs a value of a dimension; None where nobody asked."""
    of_domain: int = 0
    """Accelerators of each rack, or other domain of fast links, that a layout takes at least."""

    def allows(self, name: str, value: int | str) -> bool:
        """Whether a value of one dimension may be tried."""
        bound = self.given.get(name)
        if bound is not None and not bound.allows(value):
            return False
        if any(len(rule) == 1 and name in rule and rule[name].allows(value) for rule in self.excluded):
            return False
        return self.runs is None or self.runs(name, value)

    def choices(self, name: str, values: list[int]) -> list[int]:
        """The values that may be tried."""
        return [value for value in values if self.allows(name, value)]

    def words(self, name: str) -> list[str]:
        """The words that may be tried."""
        usual = USUAL if name == "schedule" and name not in self.given else WORDS[name]
        return [word for word in usual if self.allows(name, word)]

    @property
    def together(self) -> tuple[dict[str, Bound], ...]:
        """Exclusions of combinations."""
        return tuple(rule for rule in self.excluded if len(rule) > 1)


def parse_bounds(options: dict[str, str | None], excluded: list[str]) -> Bounds:
    """Bounds as the command line has them; an exclusion is ``tp=16..64`` or, for a combination, ``tp=8 pp=1``."""
    given = {name: parse_bound(name, text) for name, text in options.items() if text is not None}
    rules = []
    for text in excluded:
        rule: dict[str, Bound] = {}
        for part in text.split():
            name, equals, value = part.partition("=")
            name = name.strip().lstrip("-").replace("-", "_")
            if not equals or name not in DIMENSIONS:
                near = "" if name in DIMENSIONS else did_you_mean(name, DIMENSIONS)
                raise DistsimError(
                    f"--exclude {text!r} does not name a dimension and its values", near,
                    "write e.g. --exclude tp=16..64 or, for a combination, --exclude 'tp=8 pp=1'",
                )  # fmt: skip
            rule[name] = parse_bound(name, value)
        if rule:
            rules.append(rule)
    return Bounds(given, tuple(rules))
