"""What notes say of the layers of a network that no preset describes: norms, activation, positions."""

from __future__ import annotations

import re
from typing import Any

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.own_modules import writes_gelu
from distsim.interop.runs.table import Run

_QK_NORM = re.compile(affirmed(r"q[/-]?k[- _]?norm(?:s|ali[sz]ation)?|query[- ]key norms?"), re.IGNORECASE)
_FOUR_NORMS = re.compile(affirmed(r"peri-?(?:ln|norms?)|sandwich[- ]norms?"), re.IGNORECASE)
"""Norms before and after attention and MLP (Kim et al. 2025, arXiv:2502.02732)."""
_SQUARED_RELU = re.compile(r"\brelu ?(?:\^|\*\*) ?2|\brelu²|\bsquared relu\b|\brelu[- ]squared\b", re.IGNORECASE)
_RMS_NORM = re.compile(affirmed(r"rms[- _]?norms?"), re.IGNORECASE)
_LAYER_NORM = re.compile(r"\blayer[- _]?norms?\b", re.IGNORECASE)
_ROTARY = re.compile(affirmed(r"rope|rotary(?: positions| embeddings?)?"), re.IGNORECASE)
_GATED_NORM = re.compile(r"\bgated[- ]?norms?(?: of)? rank[ =]?(\d+)", re.IGNORECASE)
_HEAD_GATE = re.compile(affirmed(r"gates? (?:on|of|for) each (?:attention )?head|head-?wise gates?"), re.IGNORECASE)
_VALUE_EMBEDDINGS = re.compile(affirmed(r"value[- ]embeddings?"), re.IGNORECASE)
NANOCHAT = re.compile(r"\bnanochat\b|\bautoresearch\b", re.IGNORECASE)
"""karpathy/nanochat's network, in the script of that name, its forks, or the one for agents (karpathy/autoresearch)."""
EVERY_SECOND = 2
"""Layers that have a table of values there (gpt.py, has_ve)."""
_LEARNED = re.compile(affirmed(r"learned (?:positions?|positional|position embeddings?)"), re.IGNORECASE)


def of_nanochat(run: Run) -> bool:
    """Whether a network by hand is nanochat's, as the model's name, its family or notes say."""
    named = (run.text("model") or "", run.text("family") or "")
    return any(NANOCHAT.search(words) for words in named) or hit(NANOCHAT, run.notes) is not None


def told_traits(run: Run, traits: dict[str, Any]) -> dict[str, Any]:
    """Traits that notes state otherwise than the family has them."""
    notes, told = run.notes, dict[str, Any]()
    if hit(_QK_NORM, notes) and traits.get("qk_norm", "none") == "none":
        told["qk_norm"] = "head"
    if hit(_FOUR_NORMS, notes):
        told["norms_per_layer"] = 4
    if _SQUARED_RELU.search(notes):
        told |= {"activation": "relu2", "gated": False}
    elif traits.get("activation") == "gelu" and writes_gelu(run):
        told["activation"] = "gelu_new"
    if rank := hit(_GATED_NORM, notes):
        told["norm_gate_rank"] = int(rank[1])
    if hit(_HEAD_GATE, notes):
        told["attention_gate"] = "head"
    if of_nanochat(run):
        told["narrow_embeddings"] = True
        told |= {"value_embedding_every": EVERY_SECOND} if hit(_VALUE_EMBEDDINGS, notes) else {}
    if hit(_RMS_NORM, notes) and not _LAYER_NORM.search(notes):
        told["norm"] = "rmsnorm"
    if hit(_ROTARY, notes) and not hit(_LEARNED, notes):
        told["positions"] = "rotary"
    elif hit(_LEARNED, notes) and not hit(_ROTARY, notes):
        told["positions"] = "learned"
    return told
