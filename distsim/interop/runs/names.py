"""Names that measured runs give to software and precision, beside those of presets: whose profile stands for them."""

from __future__ import annotations

import re

from distsim import catalog
from distsim.interop.runs.denials import UNTOLD, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.numbers import BLANK
from distsim.interop.runs.table import Run
from distsim.interop.runs.updates import update_named
from distsim.last import while_same

_XLA, _MEGATRON, _TORCH = "maxtext", "megatron-core", "fsdp"
NEAREST: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(rf"(?<![a-z])(?:{words})", re.IGNORECASE), profile, split) for words, profile, split in (
        (r"gpt-?neox|megatron-?(?:deepspeed|ds)|deepspeed.?megatron", "megatron-deepspeed", ""),
        (r"fms|foundation.?model.?stack", "fms-fsdp", ""),
        (r"megatron.?bridge", "megatron-bridge", ""),
        (r"megatron.?(?:lm|llama)|pai.?megatron|vocabulary.?parallel|zero.?bubble", "megatron-lm", ""),
        (r"neuron\w*.?nemo", "neuronx-nemo", ""),
        (r"(?:nemo.?)?automodel", "nemo-automodel", ""),
        (r"torchtitan", "torchtitan", ""),
        (r"(?:bio)?nemo(?!tron)", "nemo", ""),
        (r"megatron|mcore|simumax|primus|fast-?llm", _MEGATRON, ""),  # fused kernels, gradients in buffers
        (r"intern.?evo|internlm|paddle|oneflow", "megatron-lm", ""),  # fused norms and rotation, layers split as there
        (r"mesh.?tensorflow|mesh.?tf|gshard|lingvo|praxis|saxml", "paxml", ""),
        (r"tensorflow", "tensorflow", ""),
        (r"axlearn", "axlearn", ""),
        (r"levanter|haliax", "levanter", ""),
        (r"t5-?x", "t5x", ""),
        (r"maxtext|easylm|jax|flax|haiku|xla|torch.?xla|torchprime|scalax|kauldron|gemma-?jax", _XLA, ""),
        (r"deepspeed", "deepspeed", ""),
        (r"neuron|nxd", "neuronx", ""),
        (r"habana|gaudi|synapse", "habana", ""),
        (r"torchtune", "torchtune", ""),
        (r"prime.?rl", "prime-rl", ""),
        (r"kempner.?forge", "kempnerforge", ""),
        (r"nanotron|picotron", "nanotron", ""),
        (r"unsloth", "unsloth", ""),
        (r"flash.?att(?:entio)?n", "flash-attn", ""),
        (r"hugging.?face|hf(?![a-z])|transformers|trainer|accelerate|peft|trl|swift|optimum|axolotl|llama.?factory",
         "huggingface", "megatron-lm"),
        (r"fsdp.?2", "torchtitan", ""),
        (r"ddp|distributed.?data.?parallel|horovod|apex|deep.?learning.?examples", "torch-ddp", "megatron-lm"),
        (r"transformer.?engine", _MEGATRON, ""),
        (r"fsdp|torch|lightning|fabric|olmo|fairscale|fairseq|metaseq|colossal|vescale|veomni|open.?(?:instruct|lm)",
         _TORCH, "torchtitan"),
        (r"zero", "deepspeed", ""),
    )
)  # fmt: skip
"""Words of a framework's name, the profile that is nearest, and the one where the run splits its model if that one
cannot. What trains comes before what it is built of: NeMo before Megatron, JAX and transformers before Transformer
Engine, which brings fused layers to any of them."""
TOLD_BY_NOTES = ("axolotl", "llama-factory", "ms-swift", "trl")
"""Shipped profiles of trainers around transformers that state their defaults alone. Notes of measured runs tell what
they did (engine/runs/adapters.py), and losses and checkpoints have changed with releases: replays take the profile of
transformers and peft, which was held against such runs."""
WAYS = (_TORCH, "torch-ddp")
"""Profiles whose names are ways to spread a model, which many programs take."""
PRECISIONS = {
    "bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8", "fp8-mx": "mxfp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4",
    "int8": "fp8", "tf32": "tf32", "32": "fp32", "16": "fp16", "16-mixed": "fp16", "fp16-amp": "fp16",
    "amp-fp16": "fp16", "bf16-amp": "bf16", "bf16-true": "pure-bf16", "32-true": "fp32",
    "16-true": "pure-fp16", "fp16-true": "pure-fp16", "float8": "fp8",
    **dict.fromkeys(("bf16-full", "bf16-(full)", "(full)-bf16"), "pure-bf16"),
    **dict.fromkeys(("fp16-full", "fp16-(full)"), "pure-fp16"),
    **{f"{of}{level}": recipe for of in ("", "amp-", "apex-", "apex-amp-")
       for level, recipe in (("o0", "fp32"), ("o1", "fp16"), ("o2", "fp16"), ("o3", "pure-fp16"))},
}  # fmt: skip
"""Precision cells as recipes; a framework's ``usual.<recipe>`` says what it really does under that name. ``tf32`` is
fp32 in memory with products on TF32 units where there are any. Apex's levels (its amp/frontend.py): O1 casts at each
operation, O2 holds fp16 weights with an fp32 copy."""
WHOLE_NUMBERS = ("int8",)
"""Of these, formats of another kind, timed as one that is as wide."""
HALF_AUTOCAST = ("fp16-amp", "amp-fp16", "16-mixed", "o1", "amp-o1", "apex-o1", "apex-amp-o1")
"""Cells that mean torch's autocast to fp16 around fp32 weights where a program is torch's."""
MIXED = ("amp", "mixed", "mixed-precision", "autocast")
"""Cells that name a way, not a format."""
LIKE_PRECISIONS = tuple(
    (re.compile(words), recipe) for words, recipe in (
        (r"fp4", "nvfp4"), (r"mx.?fp8|fp8.?mx", "mxfp8"), (r"fp8|float8|e4m3|e5m2", "fp8"), (r"int8(?!w)", "int8"),
        (r"bf16|bfloat", "bf16"),
        (r"fp16|float16|half", "fp16"), (r"tf32|tensorfloat", "tf32"),
        (r"fp32|float32|single", "fp32"),
    )
)  # fmt: skip
"""Other cells by the format that they name, the narrowest first: how blocks are scaled is not told apart."""
_TF32 = r"(?:allow_)?tf32(?![- ](?:peak|rate|t?flop))|(?:set_)?float32_matmul_precision\W{0,4}(?:high|medium)\b"
_NAMES_TF32, _HAS_TF32 = (re.compile(words, re.IGNORECASE) for words in (rf"\b(?:{_TF32})", affirmed(_TF32)))
_UNTOLD_TF32 = re.compile(rf"\bwhether (?:{_TF32})[^;.]*|\b(?:{_TF32})(?: settings?)?(?={UNTOLD})", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:no|not|non|without|w/o|instead-of)-(?:mx|nv)?(?:fp|bf|float|tf)\d+")
"""Formats that a cell says it is not in."""
NARROW_IN_MEMORY = re.compile(r"nf4|int4|4-?bit|int8.?weight|w\d+a16|gptq|awq")
"""What only frozen weights have."""


def nearest_profile(name: str, *, split: bool) -> str | None:
    """The preset that a framework's name is nearest to; None where no word of it is known."""
    found = next((one for one in NEAREST if one[0].search(name)), None)
    if found is None:
        return _named_in(name)
    own = _named_in(name) if found[1] in WAYS else None
    if own and own not in (*WAYS, "deepspeed"):  # litgpt (FSDP): who trains says more than how it is spread
        return own
    return found[2] if split and found[2] else found[1]


def replayed_name(name: str) -> str:
    """The framework of a row as it is replayed: by its own name, but for trainers whose runs notes tell apart."""
    if not catalog.knows("frameworks", name) or catalog.origin("frameworks", name) != "shipped":
        return name
    return "huggingface" if catalog.load("frameworks", name).name in TOLD_BY_NOTES else name


def _named_in(name: str) -> str | None:
    """The preset whose name or alias stands in a longer name (``axolotl 0.6``), the longest first."""
    plain = re.sub(r"[\s_]+", "-", name.strip().lower())
    presets = {**catalog.aliases("frameworks"), **{one: one for one in catalog.names("frameworks")}}
    words = (one for one in presets if re.search(rf"(?<![a-z0-9]){re.escape(one)}(?![a-z0-9])", plain))
    longest = max(words, key=len, default=None)
    return presets[longest] if longest else None


def precision_like(cell: str) -> str | None:
    """The recipe whose format a cell of another name has; None where it names none."""
    if NARROW_IN_MEMORY.search(cell):
        return None
    cell = _DENIED.sub("", cell)
    return next((recipe for pattern, recipe in LIKE_PRECISIONS if pattern.search(cell)), None)


def rounds_products(cell: str | None, notes: str) -> bool | None:
    """Whether precision and notes of a run in fp32 say that its products ran on TF32 units, or that they did not."""
    words = _UNTOLD_TF32.sub("", f"{(cell or '').replace('-', ' ')}; {notes}")
    return None if _NAMES_TF32.search(words) is None else _HAS_TF32.search(words) is not None


def optimizer_named(text: str | None) -> str | None:
    """The preset that a cell means: by its longest name in it, in 8 or 4 bits where it says so; all other kinds of Adam
    are as AdamW."""
    if not text:
        return None
    if projecting := update_named(text):
        return projecting
    lower, known = text.lower(), _optimizers()
    narrow = re.search(r"(?<!\d)([48])[-_ ]?bit", lower)
    plain = (one for one in known if one not in ("adam", "adamw") and one.rpartition("-")[0] not in known)
    spelt = re.sub(r"[_ ]", "-", lower)
    name = next((one for one in plain if one in spelt), "adamw" if narrow or "adam" in lower else None)
    if narrow is None:
        return name
    of_torch = "-torchao" if re.search(r"torch|\bao\b", lower) else ""
    few = [f"{name}-{narrow[1]}bit{own}" for own in (of_torch, "")]
    return next((one for one in few if one in known), name)


_OTHER_OPTIMIZERS = re.compile(
    r"adam[-_ ]?mini|shampoo|\bsoap\b|(?<!\d)1[-_ ]?bit|one[-_ ]?bit|0/1|"
    r"zero[-_ ]?one|stable[-_ ]?adam|\bmars\b|adopt|"
    r"(?:bf16|fp16|fp8|narrow)[-_ ](?:moments?|states?)",
    re.IGNORECASE,
)
"""Optimizers of other states or exchanges than any preset's."""


def assumed_optimizer(run: Run, taken: str) -> str:
    """What an optimizer that no preset describes is ``taken`` as."""
    text = run.text("optimizer") or ""
    known = optimizer_named(text) is not None or text.lower() in ("", *BLANK)
    if known and not _OTHER_OPTIMIZERS.search(text):
        return ""
    return f"optimizer {text[:40]!r}: assumed {taken}"


_FUSED = re.compile(affirmed(r"fused[-_ ]?(?:torch[-_ ]?)?adamw?|adamw?(?:_torch)?[-_ ]fused"), re.IGNORECASE)


_LOOPED = re.compile(affirmed(r"adamw?[-_ ]for[-_ ]?loop|foreach ?= ?False"), re.IGNORECASE)


def loops_over_tensors(run: Run) -> bool:
    """Whether one parameter is updated after the other, as a run's optimizer or its notes say."""
    return hit(_LOOPED, f"{run.text('optimizer') or ''}; {run.notes}") is not None


def fuses_update(run: Run) -> bool:
    """Whether one kernel updates parameters, as a run's optimizer or its notes say."""
    return "fused" in (run.text("optimizer") or "").lower() or hit(_FUSED, run.notes) is not None


@while_same(lambda: catalog.state("optimizers"))
def _optimizers() -> list[str]:
    return sorted(catalog.names("optimizers"), key=len, reverse=True)
