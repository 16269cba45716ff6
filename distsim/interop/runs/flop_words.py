"""How sources count FLOPs, told by how they name their convention."""

from __future__ import annotations

import re
from typing import NamedTuple

_NARAYANAN = r"(?i)96 ?\*? ?b(?!\d)|\bsc.?21\b|bigscience|megatron\S* formula"
"""How sources name the count of Narayanan et al. 2021: a GPT with plain MLPs, every layer computed twice."""
_SLOTTED = r"(?i)\bmoe formula"
"""How sources name Alpa's count of a GPT with GShard's experts: layers twice, products with masks too."""
_COUNTED = r"(?i)\b(?:(?P<hardware>hardware|hw|hfu)|model|mfu|causal|palm|6 ?n(?= ?\+))\b"
_CAUSAL = r"(?i)(?<!non-)(?<!non )(?<!not )\bcausal"
"""Words of a convention: who counts, and whether attention counts half."""
_PARAMETERS_ALONE = (
    r"(?i)\b(?:no|without|w/o|excluding|excl\.?|not counting|ignor\w+) (?:the )?(?:self-?)?attention(?! re)|"
    r"\b6 ?[*x·]? ?[np](?: ?[*x·]? ?d)?\b(?! ?\+)"
)
"""Those of six FLOPs for a parameter and token (Kaplan et al. 2020, section 2.1), in which attention counts nothing;
what is added to them is mostly attention."""


class FlopCount(NamedTuple):
    """What a convention counts."""

    narayanan: bool
    """Whether by the formula of Narayanan et al. 2021, whatever else it says."""
    hardware: bool
    """What is computed again, too."""
    half: bool
    """Of attention only what a causal mask leaves."""
    parameters_alone: bool
    """No attention."""
    slotted: bool = False
    """Whether by Alpa's formula of experts with slots, whatever else it says."""


def flop_count(convention: str) -> FlopCount | None:
    """What the words of a convention count; None where they tell of none."""
    narayanan = re.search(_NARAYANAN, convention) is not None
    counted, alone = (re.search(words, convention) for words in (_COUNTED, _PARAMETERS_ALONE))
    if re.search(_SLOTTED, convention):
        return FlopCount(False, True, False, False, slotted=True)
    if not narayanan and counted is None and alone is None:
        return None
    hardware = counted is not None and counted["hardware"] is not None
    return FlopCount(narayanan, hardware, re.search(_CAUSAL, convention) is not None, alone is not None)
