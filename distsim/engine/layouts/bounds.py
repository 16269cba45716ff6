"""What a search may choose: values and ranges of each dimension, and combinations that are left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from distsim.errors import DistsimError, did_you_mean
from distsim.other_names import choice_meant
from distsim.schedules.registry import plain
from distsim.specs.flags import flag

NUMBERS = ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "zero_group", "micro_batch", "recompute_layers")
USUAL = ("1f1b", "gpipe", "interleaved-1f1b")
"""Schedules that are tried where none are named."""
CLOSED = (*USUAL, "looped-bfs", "zb-h1", "zb-h2", "zb-v")
"""Schedules whose time and memory have closed forms for any number of micro-batches, and so of layouts."""
SIMULATED = ("interleaved-zb", "v-half", "v-min", "1f1b-v", "dualpipe", "dualpipe-v", "chimera", "hanayo")
"""Schedules that are simulated for the best few layouts of those above."""
WORDS: dict[str, tuple[str, ...]] = {
    "recompute": ("none", "selective", "full"),
    "schedule": (*CLOSED, *SIMULATED),
    "sequence_parallel": ("on", "off"),
}
"""Choices in words; ``all`` stands for all of them."""
DIMENSIONS = (*NUMBERS, *WORDS)


@dataclass(frozen=True)
class Bound:
    """Ranges (both ends included) or words; ``text`` is what the user wrote."""

    text: str
    ranges: tuple[tuple[int, int], ...] = ()
    words: tuple[str, ...] = ()

    def allows(self, value: int | str) -> bool:
        """Whether a value is within."""
        if isinstance(value, str):
            return value in self.words
        return any(low <= value <= high for low, high in self.ranges)


def parse_bound(name: str, text: str) -> Bound:
    """``8``, ``1..8``, ``1,2,4``, ``4..`` or words."""
    parts = [part.strip().lower() for part in text.split(",") if part.strip()]
    option = f"{flag(name)} {text}"
    if not parts:
        raise DistsimError(f"{option!r} names no value", "write e.g. 8, 1..8 or 1,2,4")
    if name in WORDS:
        parts = list(WORDS[name]) if parts == ["all"] else parts
        parts = [plain(part) for part in parts] if name == "schedule" else parts
        for part in parts:
            if part not in WORDS[name]:
                raise DistsimError(
                    f"{option}: {part!r} is not a choice of a search", choice_meant(part, WORDS[name]),
                    f"choices: {', '.join(WORDS[name])}",
                )  # fmt: skip
        return Bound(text, words=tuple(parts))
    return Bound(text, tuple(_range(option, part, 0 if name == "zero" else 1) for part in parts))


LARGEST_BOUND = 10_000_000
"""No degree, count or micro-batch that a bound names may be larger: beyond any cluster, so a slip. Assumed."""


def _range(option: str, part: str, least: int) -> tuple[int, int]:
    low, dots, high = part.partition("..")
    ends = (low or str(least), high or str(LARGEST_BOUND)) if dots else (low, low)
    if not all(end.isdigit() for end in ends) or part == "..":
        raise DistsimError(f"{option}: {part!r} is neither a whole number nor a range", "write e.g. 8, 1..8 or 1,2,4")
    first, last = int(ends[0]), int(ends[1])
    if first > last:
        raise DistsimError(f"{option}: the range {part} is empty", f"write {last}..{first}")
    if first < least or first > LARGEST_BOUND:
        valid = f"the least is {least}, the largest {LARGEST_BOUND:,}"
        raise DistsimError(f"{option}: {first:,} is out of range", valid)
    return first, last


def gpu_counts(text: str) -> tuple[int, ...]:
    """Numbers of GPUs: as listed, or doubling through a range."""
    numbers: list[int] = []
    for low, high in parse_bound("gpus", text).ranges:
        if high == LARGEST_BOUND and low != high:
            raise DistsimError(f"--gpus {text} has no end", f"write e.g. --gpus {low}..{low * 8}")
        if high > LARGEST_BOUND:
            raise DistsimError(f"--gpus {text} ends beyond any machine", f"the largest is {LARGEST_BOUND:,}")
        while low <= high:
            numbers.append(low)
            low *= 2
    return tuple(dict.fromkeys(numbers))


@dataclass(frozen=True)
class Bounds:
    """The bounds of all dimensions; one that has none is free. Each exclusion is a set of bounds that hold together."""

    given: dict[str, Bound] = field(default_factory=dict)
    excluded: tuple[dict[str, Bound], ...] = ()

    def allows(self, name: str, value: int | str) -> bool:
        """Whether a value of one dimension may be tried."""
        bound = self.given.get(name)
        if bound is not None and not bound.allows(value):
            return False
        return not any(len(rule) == 1 and name in rule and rule[name].allows(value) for rule in self.excluded)

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
