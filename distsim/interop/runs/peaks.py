"""Peak memory of a measured run in bytes, whatever unit its cells tell it in."""

from __future__ import annotations

import re

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run
from distsim.units import GIB, GIGA, MIB, TERA, TIB, gib

CELL, KIND, CARD = "mem_peak_gb_per_gpu", "mem_kind", "gpu_memory"
DECIMAL = ("QwenLM/",)
"""Sources that print decimal gigabytes: QwenLM/Qwen's table has 81.0 on cards of 80 GiB, and read as GiB all of it is
7% above what 44 runs need (docs/findings/memory-frameworks.md)."""
_SHARE = re.compile(r"%|\bper ?cent\b")
_SHARE_OF_KIND = re.compile(r"(?<!\d)(?<!\d )%|\bper ?cent\b")
"""Beside ``mem_kind`` a figure of its own may be a share (max reserved, 75%), not the peak."""
_LEAST = 0.1 * GIB
"""Less is no job's peak: words that would make it so tell how it was converted (GiB, from bytes)."""
_UNITS = (
    (re.compile(r"(?:\b|\d)mi?b\b|\d\s*m$"), MIB),
    (re.compile(r"(?:\b|\d)(?:bytes?|b)\b"), 1),
    (re.compile(r"(?:\b|\d)gib\b"), GIB),
    (re.compile(r"(?:\b|\d)tib\b"), TIB),
    (re.compile(r"(?:\b|\d)tb\b"), TERA),
)
_CARD_OF = re.compile(r"\b(?:cards?|GPUs?|[A-Z]{1,2}\d{2,4}) of (\d{2,3}(?:\.\d{1,3})?) ?Gi?B\b")
"""Notes of cards that are no usual part: "H100 of 95.04 GiB", "card of 48 GB"."""
_GIGA = re.compile(r"\bgb\b")
"""Beside ``mem_kind`` a word for the unit is meant; beside the figure it is what torch prints for GiB."""


def measured_peak_bytes(run: Run, decimal: bool = False, capacity: float | None = None) -> float | None:
    """Peak memory per GPU in bytes; ``decimal`` where the framework prints decimal gigabytes, ``capacity`` in bytes
    where the peak may be a share of it.

    torch's counters and nvidia-smi print binary units, whatever letters follow the number; only XLA's, those whose
    ``mem_kind`` says so and those of ``DECIMAL`` are decimal.
    """
    value = run.positive(CELL)
    if not value:
        return None
    kind = (run.text(KIND) or "").lower()
    if _is_share(run):
        return value / 100 * capacity if capacity else None
    unit = _told_unit(run)
    if unit is None:
        unit = GIGA if decimal or _GIGA.search(kind) or run.source.startswith(DECIMAL) else GIB
    return value * unit


def _is_share(run: Run) -> bool:
    cell, kind = ((run.text(name) or "").lower() for name in (CELL, KIND))
    cell = cell.partition("(")[0].strip()
    return bool(_SHARE.search(cell)) or (cell[-1:].isdigit() and bool(_SHARE_OF_KIND.search(kind)))


def _told_unit(run: Run) -> float | None:
    """Bytes in the unit that the figure's own cell names, or ``mem_kind``; None where they name none, or gigabytes."""
    value, words = run.positive(CELL) or 0, ((run.text(name) or "").lower() for name in (CELL, KIND))
    return next((size for text in words for unit, size in _UNITS if unit.search(text) and value * size > _LEAST), None)


def assumed_unit(run: Run, capacity: float) -> str:
    """What a peak was read as that is not told in GiB."""
    peak = measured_peak_bytes(run, capacity=capacity)
    if peak is None or not (_is_share(run) or _told_unit(run) not in (None, GIB)):
        return ""
    return f"{CELL} {run.text(CELL)} read as {gib(peak)}"


def card_bytes(run: Run) -> float | None:
    """Bytes of memory that a row says its GPUs have; None where it says nothing."""
    told = hit(_CARD_OF, run.notes)
    gibibytes = run.positive(CARD) or (float(told[1]) if told else None)
    return gibibytes * GIB if gibibytes else None
