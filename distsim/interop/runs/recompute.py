"""What measured runs call recomputation in words of their own: layers by number or share, modules by name.

Megatron-LM's options (training/arguments.py): ``--recompute-method uniform`` repeats every layer, ``block`` the first
so many of a model chunk; ``--recompute-modules`` names parts of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from distsim.interop.runs.table import MissingCell, Run
from distsim.preset_files import plain
from distsim.specs.modules import recomputed


def recompute_options(run: Run) -> dict[str, str]:
    """What is computed again by a cell in words that nobody knows, where it says something."""
    cell = (run.text("recompute") or "").lower()
    return {"recompute": "selective" if "selective" in cell or "minimal" in cell else cell} if cell else {}


_HOW = ("ac", "ckpt", "checkpoint", "checkpointing", "recompute", "recomputation", "remat")
WHOLE = ("full", "true", "yes", "on", "1", "all", "uniform", "full-uniform", "full:1", "full-1", "enabled",
         "enable", "recompute", "recomputation", "ac", "gc", "ckpt", "checkpoint", "checkpointing", "all-layers",
         *(f"{what}-{how}" for what in ("full", "activation", "gradient", "full-activation", "full-gradient")
           for how in _HOW))  # fmt: skip
NOTHING = ("none", "false", "no", "off", "0", "disabled", "disable", "never", "without", "not-used",
           *(f"no-{what}{how}" for what in ("", "activation-", "gradient-") for how in _HOW))  # fmt: skip
SELECTIVE = ("sel", "sac", *(f"selective-{what}{how}" for what in ("", "activation-") for how in _HOW))
BY_OPERATION = {"op", "per", "sac", "ac", "selective", "level"}
"""torchtitan's selective checkpointing, which keeps what products give."""
OPEN = ("auto", "automatic", "default", "-", "n/a", "na", "unknown")
BUDGET = re.compile(r"(?:activation-)?memory-budget")
"""torch.compile's activation_memory_budget, whose choice of operations is the compiler's."""
OF_JAX: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "everything-saveable": ("none", None), "nothing-saveable": ("full", None),
    **dict.fromkeys(("dots-saveable", "checkpoint-dots", "dots-with-no-batch-dims-saveable",
                     "checkpoint-dots-with-no-batch-dims"), ("selective", ("qkv", "out", "up", "down"))),
}  # fmt: skip
"""jax.checkpoint_policies by name, with the products that they keep (kernels of attention are no dots)."""
UNIFORM = re.compile(r"(?:full[-:])?uniform[-:]?(\d{1,4})$")
BLOCK = re.compile(r"(?:full[-:])?block[-:](\d{1,4})$")
SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%$")
FRACTION = re.compile(r"(?:full-)?(\d{1,3})/(\d{1,3})(?:-(?:of-)?(?:the-)?layers)?$")
PART = re.compile(r"(0?\.\d{1,4})$")
LAYERS = re.compile(r"(?:full-?)?\(?(?:first-)?(\d{1,4})-layers?\)?$")
NUMBERED = re.compile(r"(?:full-?)?\(?(?:recompute-)?num-layers[-=:]*(\d{1,4})\)?$")
EVERY = re.compile(r"(?:(?:selective|sac)-)?(?:layers?-)?every-(?:(other)|(\d{1,4}))(?:st|nd|rd|th)?(?:-layers?)?$")
SELECTED = re.compile(r"(?:selective|sac)(?:-(?:ac-)?option)?(?:-layers?(?:-(\d{1,4}))?|-(\d{1,4})(?:-layers?)?)$")
"""torchtitan's selective_ac_option: each so many-th layer is computed again, the usual second where it is a word."""
SHARED = re.compile(r"(?:selective-|full-)?(?:on-|in-)?(\d{1,3})-of-(?:the-|every-)?(\d{1,3})(?:-(?:layers|blocks))?$")
REMARK = re.compile(r"([a-z0-9-]+?)-?\((.+)\)$")
NO_REMARK = re.compile(r"\d(?!\d*$)|%|\b(?:except|but|last|first|half|some|part\w*|only|or)\b")
MOST_DIGITS = 4
"""Of a number of layers."""
_METHODS = {"full", "uniform", "block", "layer", "layers"}
_AROUND = {"activation", "activations", "gradient", "granularity", "method", "num", "per", "each", "stage", "virtual",
           "chunk", "pipeline", "model", "of", "the", "first", "all", "transformer", *_HOW}  # fmt: skip
_HOST = {"offload", "offloading", "offloaded", "cpu"}
"""Words beside a method and a number of layers, which change neither, and of what goes to the host besides."""
CALLED = {
    "core-attn": "core_attn", "core-attention": "core_attn", "attn": "core_attn", "attention": "core_attn",
    "layernorm": "layernorm", "layer-norm": "norm", "rms-norm": "norm", "norm": "norm", "norms": "norm",
    "rmsnorm": "norm",
    "mlp-act": "activation", "act": "activation", "activation": "activation", "swiglu": "activation",
    "gelu": "activation", "mlp-activation": "activation", "activation-func": "activation",
    "mlp-activation-func": "activation", "activation-function": "activation",
    "mlp-activation-function": "activation",
    "moe-act": "moe_act", "mla-up-proj": "mla_up_proj", "mlp": "mlp", "moe": "moe", "shared-experts": "shared_experts",
}  # fmt: skip
"""Parts of a layer as rows call them: Megatron's modules (specs/modules.py), and norms and activations of any kind."""
KINDS = ("norm", "activation")
_MOVES = re.compile(r"[-+,]*(?:with-)?(?:fine-grained-)?(?:activation-)?offload(?:ing)?$")
CHOICES = (
    "known: none, full, selective, op, uniform, block:N, every-N, N layers, N%, core_attn, mlp, layernorm, act, "
    "moe, moe_act, mla_up_proj, shared_experts"
)


class Said(NamedTuple):
    """What a cell means: job options, kernels, and what of it is taken for granted."""

    options: Mapping[str, Any]
    kernels: Mapping[str, Any] = {}
    assumed: str = ""


def said_by(cell: str, layers: int, chunks: int = 1, has: Collection[str] = ()) -> Said | None:
    """What the words of a cell mean of ``layers`` on a stage in so many ``chunks``, of a model that ``has`` experts,
    latent attention or shared experts; None where they are of another kind. Raises MissingCell where they leave open
    what is computed again."""
    word = plain(cell).removesuffix("-only")
    flat = re.sub(r"(?<!\d)/+|/+(?!\d)|[-\s,;:()\[\]=+&]+", "-", word).strip("-")
    return (
        _whole(cell, word)
        or _layers(cell, word, flat, layers, chunks)
        or _modules(cell, word, has)
        or _remarked(cell, word)
    )


def _whole(cell: str, word: str) -> Said | None:
    """One word for what is computed again."""
    for kind, words in (("full", WHOLE), ("none", NOTHING), ("selective", SELECTIVE)):
        if word in words:
            return Said({"recompute": kind})
    named = set(re.findall("[a-z]+", word))
    if "op" in named <= BY_OPERATION:
        return Said({"recompute": "selective"}, {"selective": ("op",)})
    if word in OPEN or BUDGET.match(word):
        return Said({}, assumed=f"recompute {cell!r}: treated as blank")
    if word == "unsloth":
        return Said({"recompute": "full", "offload": "activations"})
    if (policy := OF_JAX.get(word)) is None:
        return None
    kind, kept = policy
    return Said({"recompute": kind}, {"kept": kept} if kept else {})


def _remarked(cell: str, word: str) -> Said | None:
    """One such word with others in brackets, which tell of no part."""
    found = REMARK.match(word)
    said = found and not NO_REMARK.search(found[2]) and _whole(cell, found[1])
    if not found or not said:
        return None
    known = said.assumed or found[2] == "default"
    return said if known else said._replace(assumed=f"recompute {cell!r}: read as {found[1]}")


def unknown(cell: str) -> MissingCell:
    """The error for a cell that does not say what is computed again."""
    return MissingCell(f"recompute {cell!r} does not say what is recomputed; {CHOICES}")


def _layers(cell: str, word: str, flat: str, layers: int, chunks: int) -> Said | None:
    """So many layers of a stage, each of them whole."""
    if found := UNIFORM.match(word):
        return Said({"recompute": "full", **layers_together(int(found[1]))})
    count = _count(word, layers, chunks)
    if count is None:
        count = _selected(flat, layers)
    if count is None:
        return _worded(cell, flat, layers, chunks)
    blocks = count > 1 and NUMBERED.match(word)
    return _of_layers(count, layers, f"recompute {cell!r}: read as block:{count // chunks}" if blocks else "")


def _of_layers(count: int, layers: int, note: str = "") -> Said:
    """The options for so many of a stage's ``layers``, and what is taken for granted of them."""
    if count <= 0:
        return Said({"recompute": "none"})
    return Said({"recompute": "full"} | ({"recompute_layers": count} if count < layers else {}), assumed=note)


def layers_together(layers: int) -> dict[str, int]:
    """The option that says how many layers share a checkpoint, if several do."""
    return {"recompute_group": layers} if layers > 1 else {}


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
    return None


def _selected(flat: str, layers: int) -> int | None:
    """Every so many-th of a stage's layers, or a share of them; None where a cell names none."""
    if found := EVERY.match(flat):
        return layers // max(int(found[2] or 2), 1)
    if found := SELECTED.match(flat):
        return layers // max(int(found[1] or found[2] or 2), 1)
    if (found := SHARED.match(flat)) and int(found[2]):
        return round(layers * int(found[1]) / int(found[2]))
    return None


def _worded(cell: str, flat: str, layers: int, chunks: int) -> Said | None:
    """Megatron's method and a number of layers in any order; None where there is more, or less."""
    parts = flat.split("-")
    digits = [one for one in parts if one.isdecimal()]
    words = {*parts}.difference(digits)
    unknown_words = words - _METHODS - _AROUND - _HOST
    if unknown_words or not words & _METHODS or len(digits) > 2 or any(len(one) > MOST_DIGITS for one in digits):
        return None
    numbers = [int(one) for one in digits]
    note = f"recompute {cell!r}: copies to the host are not counted" if words & _HOST else ""
    if not numbers:
        whole = words & {"full", "uniform"} and "block" not in words
        return Said({"recompute": "full"}, assumed=note) if whole else None
    if (together := _in_checkpoint(words, numbers)) is not None:
        return Said({"recompute": "full", **layers_together(together)}, assumed=note)
    count = _numbered(words, numbers, layers, chunks)
    return None if count is None else _of_layers(count, layers, note)


def _in_checkpoint(words: Collection[str], numbers: list[int]) -> int | None:
    """How many layers share a checkpoint where that is what the one number is of: under the uniform method, which a
    single layer without a method means as well."""
    if len(numbers) > 1:
        return None
    alone = "num" in words and "block" not in words and numbers[0] == 1
    return numbers[0] if "uniform" in words or alone else None


def _numbered(words: set[str], numbers: list[int], layers: int, chunks: int) -> int | None:
    """How many of a stage's layers one or two numbers mean: 3 of 8, 4 of each chunk by the block method, 10 layers."""
    first, *of = numbers
    if of:
        return round(layers * first / of[0]) if "of" in words and of[0] else None
    if words & {"block", "num"} or (words & {"virtual", "chunk"} and words & {"layer", "layers"}):
        return first * chunks
    return first if words & {"layer", "layers"} else None


APART = ("mhc", "gdn")
"""Modules that Megatron recomputes and nothing here describes by itself: the mixing of residual streams, linear
attention."""


def _modules(cell: str, word: str, has: Collection[str]) -> Said | None:
    """Parts of every layer. ``mlp`` is that of layers without experts (Megatron-LM), ``moe`` that of layers with."""
    word, moves = _MOVES.subn("", word)
    named = [one for one in re.split(r"[^a-z-]+|-?modules?-?|(?<![a-z])(?:selective|recompute)-?", word)
             if one.strip("-")]  # fmt: skip
    parts = _split([one.strip("-") for one in named])
    apart = [one for one in parts if one in APART]
    parts = [one for one in parts if one not in APART]
    if not parts or any(one not in CALLED for one in parts):
        return None
    modules = {CALLED[one] for one in parts}
    kernels, without = recomputed(modules - set(KINDS), has, [one for one in KINDS if one in modules])
    rest = [*apart, *(one.replace("_", "-") for one in without), *["copies to the host"] * moves]
    note = f"recompute {cell!r}: {', '.join(rest)} ignored" if rest else ""
    return Said({"recompute": "selective" if kernels else "none"}, kernels, note)


def _split(parts: list[str]) -> list[str]:
    """Names that hyphens join, as they stand where blanks did: taken apart as far as all are known."""
    known = sorted(CALLED, key=len, reverse=True)
    found: list[str] = []
    for part in parts:
        left = part
        while left:
            name = next((one for one in known if left == one or left.startswith(f"{one}-")), left)
            found.append(name)
            left = left[len(name) + 1 :]
    return found


_POLICY = re.compile(r"^remat[-_ ]policy\s*[=:]?\s*")


def policy_in(words: str) -> str:
    """A policy without the words that say that it is one."""
    return _POLICY.sub("", words)


def policy_name(words: str) -> str:
    """A policy as presets of frameworks name it."""
    return re.sub(r"[\s-]+", "_", words)
