"""Optimizers of measured runs that project gradients or update inside of backward (GaLore, APOLLO, LOMO), and whether
gradients are clipped."""

from __future__ import annotations

import re
from typing import Any

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_NAMES = r"\b(?:galore|apollo)\b"
_RANK = re.compile(rf"{_NAMES}[^.;]*?\brank[ =:]*(\d+)|\brank[ =:]*(\d+)[^.;]*?{_NAMES}", re.IGNORECASE)
_UNDESCRIBED = re.compile(r"\bq-?(?:galore|apollo)|galore.*adafactor|adafactor.*galore", re.IGNORECASE)
"""Kin with weights or projections in few bits, or other states."""
_CLIPS = re.compile(
    affirmed(r"gradient clipping|gradients (?:are )?clipped|clip_grad_norm|max_grad_norm[ =:]*[\d.]"), re.IGNORECASE
)
_UNCLIPPED = re.compile(
    r"\b(?:no|without) (?:gradient[- ])?clipping\b|\bgradients (?:are )?not clipped\b|"
    r"\bmax_grad_norm[ =:]*(?:0(?:\.0)?(?![.\d])|none\b)",
    re.IGNORECASE,
)


def update_named(text: str) -> str | None:
    """The preset that words of such an optimizer mean; None for other optimizers, and for kin without a preset."""
    lower = text.lower()
    if _UNDESCRIBED.search(lower):
        return None
    layerwise = "-layerwise" if re.search(r"layer", lower) else ""
    if "galore" in lower:
        return f"galore-adamw{'-8bit' if re.search(r'8[-_ ]?bit', lower) else ''}{layerwise}"
    if "apollo" in lower:
        return "apollo-mini" if "mini" in lower else f"apollo-adamw{layerwise}"
    return next((name for name in ("adalomo", "lomo") if name in lower), None)


def update_options(run: Run, kind: str) -> dict[str, Any]:
    """The optimizer and its rank as job options, where a row's optimizer or its kind of fine-tuning names such a one;
    the rank is told with the name or in the cell of adapters."""
    cell = run.text("optimizer") or ""
    words = next((one for one in (cell, f"{kind} {cell}") if update_named(one)), "")
    name = update_named(words)
    if name is None:
        return {}
    told = _RANK.search(f"{words}; {run.notes}")
    rank = int(told[1] or told[2]) if told else run.count("lora_rank")
    return {"optimizer": name, **({"optimizer_rank": rank} if rank and not name.endswith(("mini", "lomo")) else {})}


def told_clipping(run: Run) -> bool | None:
    """Whether notes say that gradients are clipped, or that they are not; None where they say neither."""
    if _UNCLIPPED.search(run.notes):
        return False
    return True if hit(_CLIPS, run.notes) else None
