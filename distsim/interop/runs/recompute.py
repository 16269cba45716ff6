"""What measured runs call recomputation in words of their own: layers by number or share, modules by name.

Megatron-LM's options (training/arguments.py): ``--recompute-method uniform`` repeats every layer, ``block`` the first
so many of a model chunk; ``--recompute-modules`` names parts of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from distsim.interop.runs.table import MissingCell

_HOW = ("ac", "ckpt", "checkpoint", "checkpointing", "recompute", "recomputation")
WHOLE = ("full", "true", "yes", "on", "1", "all", "uniform", "full-uniform", "full:1", "full-1", "remat", "enabled",
         "enable", "recompute", "recomputation", "ac", "gc", "ckpt", "checkpoint", "checkpointing", "all-layers",
         *(f"{what}-{how}" for what in ("full", "activation", "gradient", "full-activation", "full-gradient")
           for how in _HOW))  # fmt: skip
NOTHING = ("none", "false", "no", "off", "0", "disabled", "disable", "never", "without", "no-remat",
           *(f"no-{how}" for how in _HOW))  # fmt: skip
SELECTIVE = ("sel", "sac", "selective-activation-checkpointing", *(f"selective-{how}" for how in _HOW))
BY_OPERATION = ("op", "op-sac", "sac-op", "sac-(op)", "per-op", "per-op-sac")
"""torchtitan's selective checkpointing, which keeps what products give."""
OPEN = ("auto", "automatic", "default")
UNIFORM = re.compile(r"(?:full[-:])?uniform[-:]?(\d{1,4})$")
BLOCK = re.compile(r"(?:full[-:])?block[-:](\d{1,4})$")
SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%$")
FRACTION = re.compile(r"(?:full-)?(\d{1,3})/(\d{1,3})(?:-(?:of-)?(?:the-)?layers)?$")
PART = re.compile(r"(0?\.\d{1,4})$")
LAYERS = re.compile(r"(?:full-?)?\(?(?:first-)?(\d{1,4})-layers?\)?$")
NUMBERED = re.compile(r"(?:full-?)?\(?(?:recompute-)?num-layers[-=:]*(\d{1,4})\)?$")
EVERY = re.compile(r"every-(?:(other)|(\d{1,4}))(?:st|nd|rd|th)?(?:-layers?)?$")
MODULES = {
    "core-attn": "core_attention", "core-attention": "core_attention", "attn": "core_attention",
    "attention": "core_attention", "layernorm": "norm", "norm": "norm", "norms": "norm", "rmsnorm": "norm",
    "mlp-act": "activation", "act": "activation", "activation": "activation", "swiglu": "activation",
    "gelu": "activation", "mlp-activation": "activation", "activation-func": "activation",
    "mlp-activation-func": "activation", "activation-function": "activation",
    "mlp-activation-function": "activation",
}  # fmt: skip
"""Parts of a layer, as kinds of operations that ``kernels.selective`` knows."""
OWN_MODULES = {
    "moe-act": ("experts", ("mlp.experts.activation",)),
    "mla-up-proj": ("latent attention", ("attention.query_up", "attention.kv_up")),
    "shared-experts": ("shared experts", ("mlp.shared.up", "mlp.shared.activation", "mlp.shared.down")),
}
"""Parts that only layers with such a thing have, as names of operations that it knows too (NVIDIA/Megatron-LM
core/transformer/moe/experts.py and moe_layer.py, core/transformer/multi_latent_attention.py)."""
OTHERS = ("mlp", "moe")
"""Parts that it does not know."""
NAMED = (*MODULES, *OWN_MODULES, *OTHERS)
NORM_BEFORE_EXPERTS, NORM_BEFORE_LATENT = "mlp.norm", "attention.norm"
"""The norms that Megatron's ``layernorm`` computes again: those that are modules of their own, as before experts and
latent attention. Elsewhere Transformer Engine's products have them (core/transformer/transformer_layer.py,
recompute_input_layernorm and recompute_pre_mlp_layernorm; core/models/gpt/gpt_layer_specs.py)."""
BUT_MLP = ("qkv", "context", "out")
"""What is kept where the MLP is computed again."""
_AGAIN = r"(?:re-?comput(?:e|ation)|(?:activation|gradient)[-_ ]checkpointing|remat)"
_DENIED = re.compile(
    rf"\b(?:no|without|not using) (?:full |activation )?{_AGAIN}\b(?! flags?)|"
    rf"\b{_AGAIN}(?: is | was | |[ =:]+)(?:off|false|disabled|none|no|not used)\b(?! \w)",
    re.IGNORECASE,
)
CHOICES = (
    "known are none, full, selective, op, uniform, block:N, every-N, N layers, N%, core_attn, mlp, layernorm, act, "
    "moe, moe_act, mla_up_proj, shared_experts"
)


class Said(NamedTuple):
    """What a cell means: job options, kernels, and what of it is taken for granted."""

    options: Mapping[str, Any]
    kernels: Mapping[str, Any] = {}
    assumed: str = ""


def denies_recomputation(notes: str) -> bool:
    """Whether notes say that nothing is computed again."""
    return _DENIED.search(notes) is not None


def said_by(cell: str, layers: int, chunks: int = 1, has: Collection[str] = ()) -> Said | None:
    """What the words of a cell mean of ``layers`` on a stage in so many ``chunks``, of a model that ``has`` experts,
    latent attention or shared experts; None where they are of another kind. Raises MissingCell where they leave open
    what is computed again."""
    word = re.sub(r"[\s_]+", "-", cell.strip().lower()).removesuffix("-only")
    if word in WHOLE:
        return Said({"recompute": "full"})
    if word in NOTHING:
        return Said({"recompute": "none"})
    if word in SELECTIVE:
        return Said({"recompute": "selective"})
    if word in BY_OPERATION:
        return Said({"recompute": "selective"}, {"selective": ("op",)})
    if word in OPEN:
        return Said({}, assumed=f"recompute {cell!r}: taken as where nobody says")
    return _layers(cell, word, layers, chunks) or _modules(cell, word, has)


def unknown(cell: str) -> MissingCell:
    """The error for a cell that does not say what is computed again."""
    return MissingCell(f"recompute {cell!r} does not say what is computed again; {CHOICES}")


def _layers(cell: str, word: str, layers: int, chunks: int) -> Said | None:
    """So many layers of a stage, each of them whole."""
    if found := UNIFORM.match(word):
        several = int(found[1]) > 1
        note = f"recompute {cell!r}: inputs of all layers are kept, not of one in {found[1]}" if several else ""
        return Said({"recompute": "full"}, assumed=note)
    count = _count(word, layers, chunks)
    if count is None:
        return None
    if count <= 0:
        return Said({"recompute": "none"})
    note = f"recompute {cell!r}: taken as block:{count // chunks}" if count > 1 and NUMBERED.match(word) else ""
    return Said({"recompute": "full"} | ({"recompute_layers": count} if count < layers else {}), assumed=note)


def _count(word: str, layers: int, chunks: int) -> int | None:
    """How many of a stage's layers a cell names; None where it names none."""
    if found := NUMBERED.match(word):  # of one layer each: Megatron-LM's usual uniform groups
        return layers if int(found[1]) == 1 else int(found[1]) * chunks
    if found := BLOCK.match(word):
        return int(found[1]) * chunks
    if found := LAYERS.match(word):
        return int(found[1])
    if found := SHARE.match(word):
        return round(layers * float(found[1]) / 100)
    if found := PART.match(word):
        return round(layers * float(found[1]))
    if (found := FRACTION.match(word)) and int(found[2]):
        return round(layers * int(found[1]) / int(found[2]))
    if found := EVERY.match(word):
        return layers // max(int(found[2] or 2), 1)
    return None


def _modules(cell: str, word: str, has: Collection[str]) -> Said | None:
    """Parts of every layer. ``mlp`` is that of layers without experts (Megatron-LM), ``moe`` that of layers with."""
    named = [one for one in re.split(r"[^a-z-]+|-?modules?-?|(?<![a-z])selective-?", word) if one.strip("-")]
    parts = [one.strip("-") for one in named]
    if not parts or any(one not in NAMED for one in _split(parts)):
        return None
    parts = _split(parts)
    kinds = tuple(dict.fromkeys(MODULES[one] for one in parts if one in MODULES))
    if "experts" in has and "norm" in kinds:
        norms = (NORM_BEFORE_EXPERTS, *((NORM_BEFORE_LATENT,) if "latent attention" in has else ()))
        kinds = (*(one for one in kinds if one != "norm"), *norms)
    feeding = "moe" if "experts" in has else "mlp"
    whole = feeding in parts
    rest = [one for one in parts if one in OTHERS and one != feeding]
    for one, (where, names) in OWN_MODULES.items():
        if one in parts and (where not in has or (whole and one == "mla-up-proj")):
            rest.append(one)
        elif one in parts:
            kinds = (*kinds, *names)
    note = f"recompute {cell!r}: {', '.join(rest)} left out" if rest else ""
    if whole:  # all else of a layer is computed again but products that are named to be kept
        kept = tuple(one for one in BUT_MLP if one != "context" or "core_attention" not in kinds)
        return Said({"recompute": "selective"}, {"kept": kept}, note)
    if not kinds:
        return Said({"recompute": "none"}, assumed=note)
    return Said({"recompute": "selective"}, {"selective": kinds, "kept": None}, note)


def _split(parts: list[str]) -> list[str]:
    """Names that hyphens join, as they stand where blanks did: taken apart as far as all are known."""
    known = sorted(NAMED, key=len, reverse=True)
    found: list[str] = []
    for part in parts:
        left = part
        while left:
            name = next((one for one in known if left == one or left.startswith(f"{one}-")), left)
            found.append(name)
            left = left[len(name) + 1 :]
    return found
