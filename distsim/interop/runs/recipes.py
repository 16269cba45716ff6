"""Whose recipe a measured run took: that of a library as it is, or one that its publisher tuned for speed."""

from __future__ import annotations

import re

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.models import model_of
from distsim.interop.runs.table import Run
from distsim.interop.runs.training import fine_tunes

_LIBRARY = re.compile(
    r"\b(?:library|public|stock|unmodified) recipes?\b|\bMegatron-Bridge(?: v?\d[\w.]*)?(?:'s)?,?(?: own)? recipes?\b|"
    r"(?<!scripts/performance/)\brecipes?[ /:]+(?:\w+/)*\w+_(?:pretrain|sft|peft|finetune)_(?:\w+_)?config\b|"
    r"\bNVIDIA(?:'s)? (?:[\w.-]+ )?recipes?\b|\brecipes? as (?:a )?starting point\b|"
    r"\bmegatron\.bridge\.recipes\.|\brun_recipe\.py\b|"
    r"\b\w+_(?:pretrain|sft|peft|finetune)_(?:\w+_)?config of Megatron-Bridge\b",
    re.IGNORECASE,
)
"""How runs name what a library gives its users to start from (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/recipes),
beside the scripts that make the publisher's tables (scripts/performance)."""
_TUNED = re.compile(r"\bperf(?:ormance)?[-_ ](?:recipe|run|script|table|summary|config)|pretrain_performance|"
                    r"scripts/performance|llm_pretrain\.py", re.IGNORECASE)  # fmt: skip
_TUNING = re.compile(affirmed(r"SFT|(?:supervised )?fine-?tuning"), re.IGNORECASE)
"""How notes tell of fine-tuning where no cell does."""


def of_library(run: Run) -> bool:
    """Whether words of a run name a library's recipe, or it fine-tunes experts, and nothing tunes it for speed."""
    words = f"{run.text('source') or ''} | {run.notes}"
    return (hit(_LIBRARY, words) is not None or _tunes_experts(run)) and hit(_TUNED, words) is None


def _tunes_experts(run: Run) -> bool:
    """Whether a run fine-tunes a model with experts, for which there are library recipes alone (the scripts for speed
    fine-tune Llama: NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs, *_finetune.py)."""
    return (fine_tunes(run) or hit(_TUNING, run.notes) is not None) and model_of(run).experts is not None
