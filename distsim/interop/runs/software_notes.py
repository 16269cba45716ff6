"""What ran, as the notes of a measured run say beside its cells: the framework, its launcher, whose loop, and
whether a compiler or deterministic algorithms were on."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.overlap_notes import overlaps_tensor_parallel
from distsim.interop.runs.sharding import stated_stage
from distsim.interop.runs.table import Run
from distsim.specs.layout import SHARDS_ALL

_ON_DEEPSPEED = re.compile('method "full-parameter"', re.IGNORECASE)
_QLORA_ON_DEEPSPEED = re.compile('method "Q-LoRA"', re.IGNORECASE)
_TORCHTITAN = re.compile(r"\bGPUs, torchtitan\b")
"""What benchmarks of a library ran."""
_HUGGING_FACE = re.compile(r"section: HF \+ Deepspeed", re.IGNORECASE)
"""A table of Hugging Face's models on DeepSpeed among those of Megatron."""
_DEEPSPEED_BASELINE = re.compile(r"^DeepSpeed\b[^;,]*\bbaseline\b", re.IGNORECASE)
"""What Alpa's tables hold it against: Megatron's model under DeepSpeed, as both were in 2022, which did not wait for
each kernel."""
_COMPILED_NARROW = "pytorch/torchtitan"
"""Who compiles wherever products take 8 bits, though its table of 2024 names no compiler: torchtitan's
llama3_405b.toml sets compile beside float8, whose casts take two to three times as long apart (pytorch/ao issue
685)."""
_NARROW = re.compile(r"^(mx|nv)?fp[48]|^int8|^float8|^torchao-", re.IGNORECASE)
_BLOCKING = re.compile(r"\bCUDA_LAUNCH_BLOCKING\s*=\s*1\b")
_DETERMINISTIC = re.compile(affirmed("deterministic[- ]mode"), re.IGNORECASE)
_OWN_LOOP = re.compile(
    affirmed("(?:plain|bare|own|hand-?written|custom) (?:torch|pytorch|training) loop"), re.IGNORECASE
)


def framework_name(run: Run) -> str | None:
    """The framework's cell, or what notes say that ran."""
    notes, cell = run.notes, run.text("framework")
    if hit(_TORCHTITAN, notes):
        return "torchtitan"
    if cell == "alpa" and _DEEPSPEED_BASELINE.search(notes):
        return "megatron-deepspeed-2021"
    return "deepspeed" if hit(_HUGGING_FACE, notes) else cell


def deterministic(run: Run) -> bool:
    """Whether torch ran its deterministic algorithms."""
    return hit(_DETERMINISTIC, run.notes) is not None


def blocking(run: Run) -> bool:
    """Whether each launch of a kernel waited for its end (an environment variable of CUDA)."""
    return hit(_BLOCKING, run.notes) is not None


_BY_COMPILER = re.compile(
    affirmed(
        r"compiled (?:by|with) (?:lightning[- ]?thunder|thunder|torch[._ ]?compile|(?:torch)?inductor)|"
        r"compiler thunder\w*|torch[._ ]compile (?:is |was )?(?:on|enabled|used)|"
        r"(?:with|using) torch[._ ]compile\b(?! (?:of|for|on|off)\b)"
    ),
    re.IGNORECASE,
)
"""Notes of a whole model that a compiler takes: torch's, or Thunder, which fuses the same steps."""


_OFFLOADS_PARAMETERS = re.compile(r"\bparam|\bzero[-_ ]?infinity\b", re.IGNORECASE)


def compiled(run: Run) -> bool:
    """Whether a compiler ran: where the cell says so, or notes do where it is blank, where 8-bit products have it
    whatever the cell says, or where it is blank under torchtitan, which warns without it, and under asynchronous tensor
    parallelism, which is a pass of the compiler (torchtitan's parallelize_llama.py refuses it otherwise)."""
    blank = run.flag("compile") is None and framework_name(run) == "torchtitan"
    narrow = _NARROW.search(run.text("precision") or "") is not None
    needed = narrow and (blank or run.source.startswith(_COMPILED_NARROW))
    told = run.flag("compile") is None and hit(_BY_COMPILER, run.notes) is not None
    return bool(run.flag("compile")) or told or needed or overlaps_tensor_parallel(run)


def own_loop(run: Run) -> bool:
    """Whether nobody's trainer runs the loop, but one as PyTorch's tutorials write them: what the model gave, the
    logits too, has a name (``outputs``) until the next micro-batch's takes it."""
    return hit(_OWN_LOOP, run.notes) is not None


def zero_stage(run: Run) -> int | None:
    """What the cells say, or 3 where everything trains by a script that runs on DeepSpeed whatever the number of
    GPUs, and where parameters leave the GPU, which only shards of them do."""
    stage = stated_stage(run)
    shards = on_deepspeed(run) or hit(_OFFLOADS_PARAMETERS, run.text("offload") or "") is not None
    return SHARDS_ALL if stage is None and shards else stage


def on_deepspeed(run: Run) -> bool:
    """Whether it is QwenLM/Qwen's finetune_ds.sh: ZeRO 3, with a master copy."""
    return hit(_ON_DEEPSPEED, run.notes) is not None


def qlora_on_deepspeed(run: Run) -> bool:
    """Whether it is QwenLM/Qwen's finetune_qlora_single_gpu.sh, which DeepSpeed runs in fp16, the loss too."""
    return hit(_QLORA_ON_DEEPSPEED, run.notes) is not None
