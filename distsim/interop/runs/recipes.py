"""Whose recipe a measured run took, that of a library as it is or one that its publisher tuned for speed; which of
Megatron's fusions it had; and that it dropped nothing."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_LIBRARY = re.compile(
    r"\b(?:library|public|stock|unmodified) recipes?\b|\bMegatron-Bridge(?: v?\d[\w.]*)?(?:'s)?,?(?: own)? recipes?\b|"
    r"(?<!scripts/performance/)\brecipes?[ /:]+(?:\w+/)*\w+_(?:pretrain|sft|peft|finetune)_(?:\w+_)?config\b|"
    r"\bmegatron\.bridge\.recipes\.|\brun_recipe\.py\b",
    re.IGNORECASE,
)
"""How runs name what a library gives its users to start from (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/recipes),
beside the scripts that make the publisher's tables (scripts/performance)."""
_TUNED = re.compile(r"\bperf(?:ormance)?[-_ ](?:recipe|run|script|table|summary|config)|pretrain_performance|"
                    r"scripts/performance|llm_pretrain\.py", re.IGNORECASE)  # fmt: skip


def of_library(run: Run) -> bool:
    """Whether words of a run name a library's recipe, and nothing that tunes it for speed."""
    words = f"{run.text('source') or ''} | {run.notes}"
    return hit(_LIBRARY, words) is not None and hit(_TUNED, words) is None


_COMPILED = re.compile(
    r"cross[-_]entropy[-_]loss[-_]fusion[ =:]+true(?!.*fusion[-_]impl[ =:]+te)|(?<!te )(?<!te-)(?<!engine )"
    + affirmed("fused (?:cross[- ]entropy|ce)|cross[- ]entropy fusion")
    + r"(?! \(te\))"
)
"""A flag of Megatron-LM's own; Transformer Engine's loss is another."""


def compiles_loss(run: Run) -> bool:
    """Whether notes tell of Megatron core's own fused cross entropy, whose steps torch compiles."""
    return hit(_COMPILED, run.notes.lower()) is not None


_LOSS_PLAIN = re.compile(
    r"\b(?:no|without) (?:fused (?:cross[- ]entropy|ce|loss)|(?:cross[- ]entropy|loss) fusion)\b|"
    r"\b(?:loss|cross[- ]entropy)(?: is)? not fused\b",
    re.IGNORECASE,
)


def composes_loss(run: Run) -> bool:
    """Whether notes say that no fused kernel computes the loss, as in Megatron core unless a recipe asks for one."""
    return hit(_LOSS_PLAIN, run.notes) is not None


_ROTATES_PLAINLY = re.compile(
    r"(?:apply[-_])?rope[-_ ]fusion(?:[ =:]+|\s+is\s+)(?:off|false|not set)\b|--no-rope-fusion\b|"
    r"\b(?:no|without) (?:(?:rope|rotary)[-_ ]fusion|fused (?:rope|rotation|rotary))\b",
    re.IGNORECASE,
)


def composes_rotation(run: Run) -> bool:
    """Whether notes say that no fused kernel rotates queries and keys, as in Megatron's TransformerConfig unless a
    recipe or provider turns apply_rope_fusion on."""
    return hit(_ROTATES_PLAINLY, run.notes) is not None


_DROPS_NOTHING = re.compile(
    r"(?<![-\w])(?<!lora )dropout(?: rate| probability| p)?(?:[ =:]+| of )(?:0(?:\.0+)?(?![.\d])|none\b|off\b)|"
    r"\b(?:no|without) dropout\b(?![- ]fusion)",
    re.IGNORECASE,
)
_DROPS = re.compile(
    r"(?<![-\w])(?<!lora )(?:dropout|drop rate)(?: rate| probability| p)?(?:[ =:]+| of )0?\.0*[1-9]", re.IGNORECASE
)
_ADAPTERS = ("lora", "qlora", "dora")


def drops_nothing(run: Run) -> bool:
    """Whether notes say that nothing was dropped; of runs with adapters they may speak of these."""
    return run.text("finetune_kind") not in _ADAPTERS and hit(_DROPS_NOTHING, run.notes) is not None


def drops_some(run: Run) -> bool:
    """Whether notes tell of a rate at which something is dropped; of runs with adapters they may speak of these."""
    return run.text("finetune_kind") not in _ADAPTERS and hit(_DROPS, run.notes) is not None
