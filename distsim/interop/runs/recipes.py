"""Whose recipe a measured run took: that of a library as it is, or one that its publisher tuned for speed."""

from __future__ import annotations

import re

from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

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


def of_library(run: Run) -> bool:
    """Whether words of a run name a library's recipe, and nothing that tunes it for speed."""
    words = f"{run.text('source') or ''} | {run.notes}"
    return hit(_LIBRARY, words) is not None and hit(_TUNED, words) is None
