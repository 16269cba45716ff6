"""Words beside a name that say it was not there."""

from __future__ import annotations

import functools
import re

BEFORE = "".join(
    rf"(?<!{words} )"
    for words in ("no", "not", "not yet", "nor", "never", "without", "instead of", "in place of",
                  "rather than", "but for", "than", "than with", "vs", r"vs\.",
                  "versus", "unlike", "compared with", "compared to", "turned off", "turning off", "switched off",
                  "disable", "disables", "disabled", "disabling", "avoid", "avoids", "avoiding", "not use", "not using",
                  "not need", "n't use", "n't using", "n't need", "without using")
)  # fmt: skip
BEFORE += "(?<!non-)(?<!no-)"
_OFF = r"not|never|off|false|none|0(?!\.)|disabled|(?:turned|switched) off|unavailable|commented out"
AFTER = (
    rf"(?!(?: kernels?| accumulation| reduction)?(?:(?:(?: is| was| are| were)? | ?[=:]+ ?)(?:{_OFF})\b|"
    r" ?[=:]+ ?no\b(?! \w)| (?:was|were) (?:tried|slower)\b|(?: is| was| are)? planned\b))"
)
"""Words, and values of a setting."""
UNTOLD = (
    r"(?:,? (?:is|are|was|were))?(?: the recipe's(?: and)?| unknown| unstated| unsaid|"
    r" (?:and )?(?:not|nowhere) (?:said|stated|told|given|named|recorded|known))\b"
)
"""What stands behind a name of which nothing is told."""
SWITCHED_OFF = r"(?:[ =:]+| (?:is|are|was|were) )(?:off|false|disabled|0)\b"
"""What stands behind the name of a switch that is off."""
NO_OVERLAPS = (
    r"\boverlaps (?:(?:are|were) )?(?:all )?(?:off|disabled)\b|"
    r"\bno overlap of (?:compute|computation|communication)\b(?: (?:and|with) \w+)?"
)
"""Notes of runs none of whose exchanges ran beside computation."""


def affirmed(words: str) -> str:
    """A pattern of ``words`` where nothing beside them denies it; it looks for the words first, as most texts have
    none."""
    return rf"\b(?={words}){BEFORE}(?:{words})\b{AFTER}"


@functools.lru_cache(maxsize=1024)
def told_of(words: str, text: str) -> bool:
    """Whether a text affirms ``words``, also where it denies two of them at once ("no DeepEP/HybridEP").
    Remembered: rows of a table share their notes."""
    if re.search(rf"\b(?:{words})", text, re.IGNORECASE) is None:
        return False
    together = rf"\b(?:no|not|without|neither) (?:{words})(?:(?:/| or | nor |, no )(?:{words}))+"
    left = re.sub(together, "", text, flags=re.IGNORECASE)
    return re.search(affirmed(words), left, re.IGNORECASE) is not None
