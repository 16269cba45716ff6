"""Precision under LLM Foundry's FSDP by its mixed_precision, which Composer reads (mosaicml/composer
distributed/mosaic_parallelism.py and its kin, get_mixed_precision, looked up 2026-12): DEFAULT, also where none is
stated, gathers and computes in 16 bits and reduces in fp32; PURE reduces in 16 bits, too."""

from __future__ import annotations

from distsim.interop.other_stated import Stated

MIXED = {"default": "fsdp-bf16", "pure": "fsdp-pure"}
"""Words of mixed_precision -> the recipe here."""
_FORMATS = "fsdp_config.mixed_precision."
"""How keys begin that state formats one by one."""


def llm_foundry(told: dict[str, str], stated: Stated) -> None:
    """Put the recipe of ``precision: amp_bf16`` under FSDP into ``told`` (option -> text)."""
    bf16 = f"{stated.of('precision') or ''}".lower() == "amp_bf16"
    apart = any(key.startswith(_FORMATS) for key in stated.keys)
    word = f"{stated.of('mixed_precision') or 'default'}".lower()
    if bf16 and not apart and word in MIXED:
        told["precision"] = MIXED[word]
