"""Modules that a network's author wrote of elementary operations, as notes tell of them."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_BEFORE = r"(?:own|hand-?written|composed) "
_AFTER = r"(?: (?:are|is))? (?:written (?:out|by hand)|composed)"
_NORMS, _GELU = r"layer[- _]?norms?", r"gelus?"
_BOTH = rf"(?:{_NORMS}(?:,| and| or) {_GELU}|{_GELU}(?:,| and| or) {_NORMS})"


def _said(words: str) -> re.Pattern[str]:
    return re.compile(affirmed(f"{_BEFORE}(?:{_BOTH}|{words})\\b|(?:{_BOTH}|{words}){_AFTER}"), re.IGNORECASE)


_OWN_NORM, _OWN_GELU = _said(_NORMS), _said(_GELU)


def writes_norms(run: Run) -> bool:
    """Whether notes tell of layer norms of elementary operations: ``own LayerNorm``, ``LayerNorm written out``."""
    return hit(_OWN_NORM, run.notes) is not None


def writes_gelu(run: Run) -> bool:
    """Whether notes tell of a GELU of elementary operations."""
    return hit(_OWN_GELU, run.notes) is not None
