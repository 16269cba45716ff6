"""Words beside a name that say it was not there."""

from __future__ import annotations

BEFORE = "".join(
    rf"(?<!{words} )" for words in ("no", "not", "not yet", "without", "instead of", "than", "vs", r"vs\.", "versus")
)
BEFORE += "(?<!non-)(?<!no-)"
AFTER = r"(?! (?:is |was )?(?:not|off|disabled))"


def affirmed(words: str) -> str:
    """A pattern of ``words`` where nothing beside them denies it; it looks for the words first, as most texts have
    none."""
    return rf"\b(?={words}){BEFORE}(?:{words})\b{AFTER}"
