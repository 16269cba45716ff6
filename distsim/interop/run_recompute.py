"""What measured runs call recomputation in words of their own: layers by number or share, modules by name.

Megatron-LM's options (training/arguments.py): ``--recompute-method uniform`` repeats every layer, ``block`` the first
so many of a model chunk; ``--recompute-modules`` names parts of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from distsim.interop.runs import MissingCell

WHOLE = ("full", "true", "yes", "on", "1", "all", "uniform", "full-uniform", "full:1", "full-1", "remat", "checkpoint",
         "checkpointing", "gradient-checkpointing", "activation-checkpointing")  # fmt: skip
NOTHING = ("none", "false", "no", "off", "0")
SELECTIVE = ("sel", "selective-ac")
UNIFORM = re.compile(r"(?:full[-:])?uniform[-:]?(\d{1,4})$")
BLOCK = re.compile(r"(?:full[-:])?block[-:](\d{1,4})$")
SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%$")
EVERY = re.compile(r"every-(?:(other)|(\d{1,4}))(?:st|nd|rd|th)?(?:-layers?)?$")
MODULES = {
    "core-attn": "core_attention", "core-attention": "core_attention", "attn": "core_attention",
    "attention": "core_attention", "layernorm": "norm", "norm": "norm", "norms": "norm", "rmsnorm": "norm",
    "moe-act": "activation", "mlp-act": "activation", "act": "activation", "activation": "activation",
    "swiglu": "activation", "gelu": "activation",
}  # fmt: skip
"""Parts of a layer, as kinds of operations that ``kernels.selective`` knows."""
OTHERS = ("mlp", "moe", "mla-up-proj", "shared-experts")
"""Parts that it does not."""
BUT_MLP = ("qkv", "context", "out")
"""What is kept where the MLP is computed again."""
CHOICES = "known are none, full, selective, uniform, block:N, every-N, N%, core_attn, mlp, layernorm, activation"


class Said(NamedTuple):
    """What a cell means: job options, kernels, and what of it is taken for granted."""

    options: Mapping[str, Any]
    kernels: Mapping[str, Any] = {}
    assumed: str = ""


def said_by(cell: str, layers: int, chunks: int = 1) -> Said | None:
    """What the words of a cell mean of ``layers`` on a stage in so many ``chunks``; None where they are of another
    kind. Raises MissingCell where they leave open what is computed again."""
    word = re.sub(r"[\s_]+", "-", cell.strip().lower())
    if word in WHOLE:
        return Said({"recompute": "full"})
    if word in NOTHING:
        return Said({"recompute": "none"})
    if word in SELECTIVE:
        return Said({"recompute": "selective"})
    return _layers(cell, word, layers, chunks) or _modules(cell, word)


def unknown(cell: str) -> MissingCell:
    """The error for a cell that does not say what is computed again."""
    return MissingCell(f"recompute {cell!r} does not say what is computed again; {CHOICES}")


def _layers(cell: str, word: str, layers: int, chunks: int) -> Said | None:
    """So many layers of a stage, each of them whole."""
    if found := UNIFORM.match(word):
        several = int(found[1]) > 1
        note = f"recompute {cell!r}: inputs of all layers are kept, not of one in {found[1]}" if several else ""
        return Said({"recompute": "full"}, assumed=note)
    if found := BLOCK.match(word):
        count = int(found[1]) * chunks
    elif found := SHARE.match(word):
        count = round(layers * float(found[1]) / 100)
    elif found := EVERY.match(word):
        count = layers // max(int(found[2] or 2), 1)
    else:
        return None
    if count <= 0:
        return Said({"recompute": "none"})
    return Said({"recompute": "full"} | ({"recompute_layers": count} if count < layers else {}))


def _modules(cell: str, word: str) -> Said | None:
    """Parts of every layer."""
    named = [one for one in re.split(r"[^a-z-]+|-?modules?-?|(?<![a-z])selective-?", word) if one.strip("-")]
    parts = [one.strip("-") for one in named]
    if not parts or any(one not in MODULES and one not in OTHERS for one in _split(parts)):
        return None
    parts = _split(parts)
    kinds = tuple(dict.fromkeys(MODULES[one] for one in parts if one in MODULES))
    rest = [one for one in parts if one in OTHERS]
    if not kinds:
        return Said({"recompute": "selective"}, {"kept": BUT_MLP}) if rest == ["mlp"] else None
    note = f"recompute {cell!r}: {', '.join(rest)} left out" if rest else ""
    return Said({"recompute": "selective"}, {"selective": kinds}, note)


def _split(parts: list[str]) -> list[str]:
    """Names that hyphens join, as they stand where blanks did: taken apart as far as all are known."""
    known = sorted((*MODULES, *OTHERS), key=len, reverse=True)
    found: list[str] = []
    for part in parts:
        left = part
        while left:
            name = next((one for one in known if left == one or left.startswith(f"{one}-")), left)
            found.append(name)
            left = left[len(name) + 1 :]
    return found
