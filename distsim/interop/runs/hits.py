"""Patterns in what measured runs say of themselves."""

from __future__ import annotations

import functools
import re


@functools.lru_cache(maxsize=4096)
def hit(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first place in a text that a pattern fits. Remembered: rows of a table share their notes, which are long."""
    return pattern.search(text)
