"""Patterns in what measured runs say of themselves."""

from __future__ import annotations

import functools
import re

from distsim.interop.runs.needed_words import needed, small

KEPT_TEXTS = 64
"""Texts whose answers are kept: rows of a table share their notes, and each asks of several texts in turn."""
FEW_TEXTS = 70
"""Texts that are sooner searched than every pattern is taken apart to look for its words first. Measured."""


class _Heard:
    """What patterns have found in a text."""

    texts = 0

    def __init__(self, text: str) -> None:
        _Heard.texts += 1
        self.plain = small(text) if _Heard.texts > FEW_TEXTS else ""
        self.found: dict[int, tuple[re.Pattern[str], re.Match[str] | None]] = {}

    def may_have(self, pattern: re.Pattern[str]) -> bool:
        """Whether one of the words is there without which the pattern fits nowhere."""
        words = needed(pattern) if self.plain else ()
        return not words or any(word in self.plain for word in words)


_heard = functools.lru_cache(maxsize=KEPT_TEXTS)(_Heard)


def told(pattern: re.Pattern[str], text: str) -> set[str]:
    """What the first group of a pattern is wherever it fits in a text."""
    return {found[1] for found in pattern.finditer(text)} if hit(pattern, text) else set()


def hit(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first place in a text that a pattern fits. Remembered by the pattern itself, not by what it says: some say so
    much that it takes as long to compare them as to search."""
    heard = _heard(text)
    known = heard.found.get(id(pattern))
    if known is None:
        found = pattern.search(text) if heard.may_have(pattern) else None
        known = heard.found[id(pattern)] = pattern, found
    return known[1]
