"""What the notes of a measured run say of its hardware and software that no cell holds; beside it stand what they say
of experts (expert_notes.py), of losses (loss_notes.py) and of graphs (graphs.py)."""

from __future__ import annotations

import re

from distsim import catalog
from distsim.interop.runs.denials import NO_OVERLAPS, SWITCHED_OFF, affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.sharding import stated_stage
from distsim.interop.runs.table import MissingCell, Run
from distsim.interop.runs.tuning import lengths_of
from distsim.specs.layout import SHARDS_ALL

_ON_DEEPSPEED = re.compile('method "full-parameter"', re.IGNORECASE)
_QLORA_ON_DEEPSPEED = re.compile('method "Q-LoRA"', re.IGNORECASE)
_PARTS = (
    (re.compile(r"500W power limit|lower-TDP H100"), "h100-sxm-96gb-500w"),
    (re.compile(r"H100 95 ?GiB"), "h100-sxm-94gb"),
    (re.compile(r"power[- ]limited B200"), "b200-sxm-750w"),
)
"""Parts that go by the name of h100-sxm and b200-sxm: with HBM2e, and with less power."""
_OWN_PARTS = {("pytorch/ao", "h100-sxm"): "h100-sxm-96gb-500w"}
"""Whose machines have another part: torchao's roofline_utils.py knows Meta's H100 by its 2.4 TB/s, and Meta's
benchmarks set 500 W (pytorch/helion pull request 347, pytorch/torchtitan benchmarks)."""
_TORCHTITAN = re.compile(r"\bGPUs, torchtitan\b")
"""What benchmarks of a library ran."""
_HUGGING_FACE = re.compile(r"section: HF \+ Deepspeed", re.IGNORECASE)
"""A table of Hugging Face's models on DeepSpeed among those of Megatron."""
_OVERLAPPED = re.compile(
    affirmed(r"async(?:hronous)?[- ]?(?:tp|tensor[- ]parallel\w*)|(?:enable_)?async_tensor_parallel"), re.IGNORECASE
)
_APART = re.compile(
    r"overlap_comm (?:is )?(?:false|off)|overlap_comm *[=:] *false|\bno overlap[-_]grad[-_]reduce|\bno overlap flags|"
    r"\bno overlap of (?:gradients?|gather)\b|ZeRO-?[123] without overlap|"
    rf"\boverlap[-_]grad[-_]reduce{SWITCHED_OFF}|\boverlap of (?:the )?gradient(?: reduction|s)?{SWITCHED_OFF}|"
    rf"\bgradient (?:reduction|all-?reduce) not overlapped\b|{NO_OVERLAPS}",
    re.IGNORECASE,
)
_GATHERS_APART = re.compile(
    rf"\bno overlap[-_]param[-_]gather\b|\boverlap[-_]param[-_]gather{SWITCHED_OFF}|"
    rf"\boverlap of (?:the )?param(?:eter)? gather{SWITCHED_OFF}|\bparam(?:eter)? gather not overlapped\b",
    re.IGNORECASE,
)
_COMPILED_NARROW = "pytorch/torchtitan"
"""Who compiles wherever products take 8 bits, though its table of 2024 names no compiler: torchtitan's
llama3_405b.toml sets compile beside float8, whose casts take two to three times as long apart (pytorch/ao issue
685)."""
_NARROW = re.compile(r"^(mx|nv)?fp[48]|^int8|^float8|^torchao-", re.IGNORECASE)
_WIDE_TAIL = re.compile(r"\blayers \d+-\d+ NVFP4, \d+-\d+ bf16", re.IGNORECASE)
_REDUCED = "(?:accumulated |(?:all-?)?reduced |kept )?"


def _gradients_in(kind: str) -> str:
    """Words for gradients that are kept or reduced in a format."""
    return (
        rf"{kind} (?:(?:main )?param(?:eter)?s and )?(?:main )?grad(?:ient)?s?(?! (?:norm|clip))|"
        rf"gradients (?:are )?{_REDUCED}in {kind}|{kind} (?:all-?reduce|reduce-?scatter|reduction) of gradients"
    )


_WIDE_GRADIENTS = re.compile(
    affirmed(
        rf"{_gradients_in('fp32')}|(?:grad[-_]reduce|accumulate[-_]allreduce[-_]grads)[-_]in[-_]fp32|"
        r"reduce_dtype[ =:]*(?:torch\.)?(?:fp32|float32)"
    ),
    re.IGNORECASE,
)
_NARROW_GRADIENTS = re.compile(
    affirmed(_gradients_in("bf16")) + r"|main[-_]grads[-_]dtype[ =:]*bf16|grad[-_]reduce[-_]in[-_]fp32[ =:]*(?:false|0)"
    r"|\bMixedPrecision(?!Policy)[ (]{1,2}bf16\b(?![^;.]*(?:fp32|float32))|reduce_dtype[ =:]*(?:torch\.)?bf(?:loat)?16",
    re.IGNORECASE,
)
_NARROW_WEIGHTS = re.compile(
    affirmed(r"(?:bf16|bfloat16) (?:model )?weights(?! (?:share|assumed|exchange))"), re.IGNORECASE
)
_NARROW_STATES = re.compile(
    affirmed(
        r"(?:bf16|bfloat16) (?:gradients and )?(?:(?:adam )?moments|optimizer states)|"
        r"(?:moments|optimizer states) (?:are )?(?:in )?(?:bf16|bfloat16)\b"
    ),
    re.IGNORECASE,
)
_TORCHAO = re.compile(affirmed(r"torchao(?:'s)? float8|float8 (?:of|by|from|through) torchao"), re.IGNORECASE)
_CAPPED = re.compile(
    affirmed(
        r"\bpower (?:limit|cap)(?: of| at| to|:)? ?(\d{2,4}) ?W\b|\b(\d{3,4}) ?W (?:power )?(?:limit|cap)\b(?! shared)|"
        r"\blimited to (\d{2,4}) ?W\b"
    ),
    re.IGNORECASE,
)
_COMPOSED = re.compile(
    r"\beager activations?\b|\b(?:no|without) (?:fused activations?|bias[-_]activation[-_]fusion)|"
    r"bias[-_]activation[-_]fusion(?:[ =:]+|\s+is\s+)(?:off|false|not set)|--no-bias-swiglu-fusion|"
    r"\bactivations?(?: and loss(?:es)?)?(?: are)? not fused\b",
    re.IGNORECASE,
)
_BLOCKING = re.compile(r"\bCUDA_LAUNCH_BLOCKING\s*=\s*1\b")
_DETERMINISTIC = re.compile(affirmed("deterministic[- ]mode"), re.IGNORECASE)
_OWN_LOOP = re.compile(
    affirmed("(?:plain|bare|own|hand-?written|custom) (?:torch|pytorch|training) loop"), re.IGNORECASE
)
_LOSS_ALONE = re.compile(affirmed("keeps the loss alone"), re.IGNORECASE)
_DENSE_MASK = re.compile(affirmed("dense (?:attention |causal )?mask"), re.IGNORECASE)
_UNPACKED = re.compile(affirmed("unpacked(?! (?:weights|by|in|on|into|from|before|to))"), re.IGNORECASE)
_UNTOLD = re.compile(r"\bnot packed\b[^.;]{0,40}\bmean\b[^.,;]{0,12}\bnot (?:stated|told|known)", re.IGNORECASE)
"""A length that nothing reaches, of samples whose mean nobody tells."""
_SCHEDULES = tuple(
    (name, re.compile(affirmed(words), re.IGNORECASE))
    for name, words in (
        ("gpipe", "gpipe"), ("v-half", "v-half"), ("v-min", "v-min"), ("zb-h1", "zb-?h1"), ("zb-h2", "zb-?h2"),
        ("zb-v", "zb-?v"), ("dualpipe", "dualpipe(?!-?v)"), ("dualpipe-v", "dualpipe-?v"),
    )
)  # fmt: skip
_VOCABULARY = re.compile(r"\b(vocab-[12]|interlaced)\b", re.IGNORECASE)
"""Ways of vocabulary parallelism by the names that its authors gave them."""
_REDISTRIBUTED = re.compile(affirmed(r"redis|layers? redistribut\w*"), re.IGNORECASE)


def gpu_of(run: Run) -> str | None:
    """The GPU's cell, or the part of that name that the notes describe."""
    name, notes = run.text("gpu"), run.notes
    own = next((part for (who, chip), part in _OWN_PARTS.items() if run.source.startswith(who) and chip == name), None)
    told = next((part for words, part in _PARTS if hit(words, notes)), None)
    return own or (told if told and name == "-".join(told.split("-")[:2]) else name)


def framework_name(run: Run) -> str | None:
    """The framework's cell, or what notes say that ran."""
    notes = run.notes
    if hit(_TORCHTITAN, notes):
        return "torchtitan"
    return "deepspeed" if hit(_HUGGING_FACE, notes) else run.text("framework")


def exchanges_in_bf16(run: Run) -> bool:
    """Whether gradients are reduced in 16 bits too (Composer's mixed precision PURE, not DEFAULT)."""
    return "MP mode PURE" in run.notes


def deterministic(run: Run) -> bool:
    """Whether torch ran its deterministic algorithms."""
    return hit(_DETERMINISTIC, run.notes) is not None


def blocking(run: Run) -> bool:
    """Whether each launch of a kernel waited for its end (an environment variable of CUDA)."""
    return hit(_BLOCKING, run.notes) is not None


def gradients_of(run: Run) -> str | None:
    """The format in which the cell of precision or notes say that gradients are accumulated and reduced; where they
    tell of both, the first."""
    notes = f"{run.text('precision') or ''}; {run.notes}"
    found = [(one.start(), kind) for words, kind in ((_WIDE_GRADIENTS, "fp32"), (_NARROW_GRADIENTS, "bf16"))
             if (one := hit(words, notes))]  # fmt: skip
    return min(found)[1] if found else None


def weighs_16_bits(run: Run) -> bool:
    """Whether notes say that weights themselves are in bf16, as they are not under autocast."""
    return hit(_NARROW_WEIGHTS, run.notes) is not None


def keeps_16_bit_states(run: Run) -> bool:
    """Whether notes say that an optimizer's states are in bf16, as Megatron's precision-aware one may keep them beside
    an fp32 master copy (--exp-avg-dtype, --exp-avg-sq-dtype)."""
    return hit(_NARROW_STATES, run.notes) is not None


def composes_activations(run: Run) -> bool:
    """Whether notes say that Megatron's fused activations are off, as they are unless a recipe turns them on."""
    return hit(_COMPOSED, run.notes) is not None


def scaled_by_rows(run: Run) -> str:
    """What notes or the cell say of the scales of 8-bit products, as the end of a recipe's name."""
    notes = f"{run.text('precision') or ''}; {run.notes}"
    return "_rowwise_gw_hp" if "rowwise_with_gw_hp" in notes else "_rowwise" if "rowwise" in notes else ""


def torchao_recipe(run: Run) -> str:
    """The recipe of 8-bit products that notes name as torchao's; nothing where they name none."""
    scaled = scaled_by_rows(run).replace("_", "-") or "-tensorwise"
    return f"torchao{scaled}" if hit(_TORCHAO, run.notes) else ""


def wide_tail(run: Run) -> str:
    """The end of a recipe's name where notes say that the last layers' products stay in 16 bits."""
    return "_mixed" if hit(_WIDE_TAIL, run.notes) else ""


def exchanges_apart(run: Run) -> bool:
    """Whether notes deny that gradients are reduced, and parameters gathered, beside computation."""
    return hit(_APART, run.notes) is not None


def gathers_apart(run: Run) -> bool:
    """Whether notes deny that parameters are gathered beside computation, of whatever gradients do."""
    return hit(_GATHERS_APART, run.notes) is not None


def power_of(run: Run) -> float | None:
    """Watts of each GPU: what the cell says, else a cap that notes tell if it is below what the GPU takes by itself."""
    stated = run.positive("gpu_power")
    told = hit(_CAPPED, run.notes) if stated is None else None
    if told is None:
        return stated
    cap, name = float(next(filter(None, told.groups()))), gpu_of(run) or ""
    own = catalog.load("gpus", name).power if catalog.knows("gpus", name) else None
    return cap if own and cap < own else None


def overlaps_tensor_parallel(run: Run) -> bool:
    """Whether tensor parallel exchanges run in pieces beside products (torch's asynchronous tensor parallelism)."""
    return hit(_OVERLAPPED, run.notes) is not None


_BY_COMPILER = re.compile(
    affirmed(
        r"compiled (?:by|with) (?:lightning[- ]?thunder|thunder|torch[._ ]?compile|(?:torch)?inductor)|"
        r"compiler thunder\w*|torch[._ ]compile (?:is |was )?(?:on|enabled|used)|"
        r"(?:with|using) torch[._ ]compile\b(?! (?:of|for|on|off)\b)"
    ),
    re.IGNORECASE,
)
"""Notes of a whole model that a compiler takes: torch's, or Thunder, which fuses the same steps."""


def compiled(run: Run) -> bool:
    """Whether a compiler ran: where the cell says so, or notes do where it is blank, where 8-bit products have it
    whatever the cell says, or where it is blank under torchtitan, which warns without it, and under asynchronous tensor
    parallelism, which is a pass of the compiler (torchtitan's parallelize_llama.py refuses it otherwise)."""
    blank = run.flag("compile") is None and framework_name(run) == "torchtitan"
    narrow = _NARROW.search(run.text("precision") or "") is not None
    needed = narrow and (blank or run.source.startswith(_COMPILED_NARROW))
    told = run.flag("compile") is None and hit(_BY_COMPILER, run.notes) is not None
    return bool(run.flag("compile")) or told or needed or overlaps_tensor_parallel(run)


def pipeline_options(run: Run) -> dict[str, str]:
    """Schedule, placement of layers and of the vocabulary, where a pipeline's notes name one that is not the usual."""
    notes, cell = run.notes, run.text("pp") or ""
    if (run.count("pp") or 1) == 1:
        return {}
    named = [name for name, words in _SCHEDULES if hit(words, notes) or hit(words, cell)]
    found = {"schedule": named[0]} if len(named) == 1 else {}
    if shared := hit(_VOCABULARY, notes):
        found["vocab_parallel"] = shared[1].lower()
    if hit(_REDISTRIBUTED, notes):
        found["stage_layers"] = "balanced"
    return found


def own_loop(run: Run) -> bool:
    """Whether nobody's trainer runs the loop, but one as PyTorch's tutorials write them: what the model gave, the
    logits too, has a name (``outputs``) until the next micro-batch's takes it."""
    return hit(_OWN_LOOP, run.notes) is not None


def keeps_loss_alone(run: Run) -> bool:
    """Whether notes tell that nothing but the loss outlives forward."""
    return hit(_LOSS_ALONE, run.notes) is not None


def masks_densely(run: Run) -> bool:
    """Whether notes tell that attention is given a mask of all queries and keys, as compiled models of transformers
    give it from 4.53 of June 2025 on, with torch before 2.14 (its masking_utils.py, _ignore_causal_mask_sdpa)."""
    return hit(_DENSE_MASK, run.notes) is not None


def recompute_options(run: Run) -> dict[str, str]:
    """What is computed again by a cell in words that nobody knows, where it says something."""
    cell = (run.text("recompute") or "").lower()
    return {"recompute": "selective" if "selective" in cell or "minimal" in cell else cell} if cell else {}


def zero_stage(run: Run) -> int | None:
    """What the cells say, or 3 where everything trains by a script that runs on DeepSpeed whatever the number of
    GPUs."""
    stage = stated_stage(run)
    return SHARDS_ALL if stage is None and on_deepspeed(run) else stage


def on_deepspeed(run: Run) -> bool:
    """Whether it is QwenLM/Qwen's finetune_ds.sh: ZeRO 3, with a master copy."""
    return hit(_ON_DEEPSPEED, run.notes) is not None


def qlora_on_deepspeed(run: Run) -> bool:
    """Whether it is QwenLM/Qwen's finetune_qlora_single_gpu.sh, which DeepSpeed runs in fp16, the loss too."""
    return hit(_QLORA_ON_DEEPSPEED, run.notes) is not None


def check_lengths(run: Run) -> None:
    """Raise MissingCell where the length is only a cap and the notes do not tell how long samples are."""
    if (hit(_UNPACKED, run.notes) or _UNTOLD.search(run.notes)) and lengths_of(run) is None:
        raise MissingCell("seq_len is only an upper limit: samples are not packed, and their lengths are unknown")
