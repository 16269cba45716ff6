"""What cells and notes of a run that trains adapters say of them beside their rank: how many parameters they have, who
runs them, which of all weights are in 16 bits, and whether anything is computed again."""

from __future__ import annotations

import re
from typing import NamedTuple

from distsim.interop.runs.denials import affirmed
from distsim.interop.runs.hits import hit
from distsim.interop.runs.table import Run

_COUNTED = re.compile(
    r"\b(\d[\d,]*(?:\.\d+)?)( ?(?:M\b|million\b))? (?:trainable|trained) param(?:eter)?s?(?: at rank (\d+))?",
    re.IGNORECASE,
)
"""How notes tell it: ``4,194,304 trainable parameters``, ``40M trainable parameters at rank 16``."""
_ITSELF = re.compile(r"axolotl|llama-?factory|ms-?swift|unsloth|trl", re.IGNORECASE)
"""Software around transformers that checkpoints unless told otherwise (for TRL so since 2025). Trainer itself does not
(``gradient_checkpointing`` of TrainingArguments is False), but peft's prepare_model_for_kbit_training does."""
_CHECKPOINTS = re.compile(
    affirmed(r"(?:gradient|activation)[ _]checkpointing(?![^;.]*\b(?:not|nor) (?:said|stated|known))"), re.IGNORECASE
)
_ALL_NARROW = re.compile(
    affirmed(r"weights and (?:both )?moments (?:in )?bf16|adapters (?:are )?(?:cast to|in) (?:bf16|bfloat16)\b"),
    re.IGNORECASE,
)
"""Notes of trainers that hold all that trains in 16 bits, adapters too, which peft makes fp32 unless told otherwise
(``autocast_adapter_dtype``)."""
_NARROW_BASE = re.compile(
    affirmed(
        r"base (?:model )?(?:weights )?(?:is |are )?(?:frozen |held |kept )?(?:in )?(?:bf16|bfloat16)\b|"
        r"(?:bf16|bfloat16) base\b|(?:bf16|bfloat16) weights(?: \([^;]*\))? under (?:torch\.)?autocast\b"
    ),
    re.IGNORECASE,
)
_NOT_UPCAST = re.compile(r"(?:base|norms?|embeddings?)[^;.]{0,20}\bnot upcast\b", re.IGNORECASE)
"""Notes of trainers that leave embedding and norms beside quantised weights as they are (fms-acceleration's
accelerated-peft-bnb), where peft's prepare_model_for_kbit_training makes them fp32."""
_PREPARES = re.compile(r"llama-?factory|axolotl", re.IGNORECASE)
"""Software around transformers that prepares models itself and upcasts nothing unless told (hiyouga/LLaMA-Factory
hparams/model_args.py, upcast_layernorm: False by default), or takes back what peft upcast of models with adapters
(axolotl-ai-cloud/axolotl loaders/model.py: converting modules for flash attention, needs_fa2_dtype)."""
_CASTS_BACK = re.compile(r"\btrl\b|sft.?trainer", re.IGNORECASE)
"""Trainers that take embedding and output layer beside 4-bit weights back to bf16 (huggingface/trl 0.24
trainer/utils.py, peft_module_casting_to_bf16 where the job is bf16), or prepare nothing (its main branch)."""
_NOT_BACK = re.compile(r"fp16|float16|int8|8.?bit", re.IGNORECASE)
"""Recipes for which they did not, before they prepared nothing."""
_DECOMPOSED = re.compile(r"\bq?dora\b", re.IGNORECASE)
"""How a row's kind, or the file that it is from, tells of weight-decomposed adapters."""
_SCRIPTS = ("QwenLM/Qwen",)
"""Publishers whose own scripts checkpoint (finetune_lora_single_gpu.sh and finetune_lora_ds.sh, recalled)."""
_KERNELS = re.compile(affirmed(r"lora_(?:mlp|qkv|o)_kernels?|fused LoRA kernels?"), re.IGNORECASE)
"""Notes of axolotl's kernels for adapters, which are Unsloth's in kind (axolotl-ai-cloud/axolotl kernels/lora.py)."""
_MLP_KERNEL = re.compile(affirmed(r"lora_mlp_kernel|fused LoRA kernels"), re.IGNORECASE)
"""Of them the one for MLPs."""


class Counted(NamedTuple):
    """Parameters of adapters as notes count them, and at which rank if they say so."""

    parameters: float
    rank: int | None


def counted_parameters(run: Run) -> Counted | None:
    """How many parameters of adapters the notes tell; None where they tell none."""
    said = hit(_COUNTED, run.notes)
    if said is None:
        return None
    return Counted(float(said[1].replace(",", "")) * (1e6 if said[2] else 1.0), int(said[3]) if said[3] else None)


def has_kernels(run: Run) -> bool:
    """Whether notes tell of kernels like Unsloth's."""
    return hit(_KERNELS, run.notes) is not None


def mlp_in_one(run: Run) -> bool:
    """Whether such a function runs a gated MLP with its adapters."""
    return hit(_MLP_KERNEL, run.notes) is not None


def all_narrow(run: Run) -> bool:
    """Whether notes tell that all that trains is in 16 bits."""
    return hit(_ALL_NARROW, run.notes) is not None


def narrow_base(run: Run) -> bool:
    """Whether notes tell of frozen weights in bf16."""
    return hit(_NARROW_BASE, run.notes) is not None


def leaves_base(run: Run) -> bool:
    """Whether embedding and norms beside quantised weights stay in 16 bits."""
    software = f"{run.text('framework')} {run.source}"
    return _PREPARES.search(software) is not None or leaves_norms_narrow(run) or _casts_back(run)


def _casts_back(run: Run) -> bool:
    recipe = f"{run.text('precision')} {run.text('finetune_kind')}"
    return _CASTS_BACK.search(run.text("framework") or "") is not None and _NOT_BACK.search(recipe) is None


def leaves_norms_narrow(run: Run) -> bool:
    """Whether notes tell that embedding and norms beside frozen weights stay in 16 bits."""
    return hit(_NOT_UPCAST, run.notes) is not None


def checkpoints_itself(run: Run) -> bool:
    """Whether the cell names software that checkpoints unless told otherwise."""
    return _ITSELF.search(run.text("framework") or "") is not None


def told_to_checkpoint(run: Run) -> bool:
    """Whether notes tell of checkpoints, or the publisher's scripts make them."""
    return run.source.startswith(_SCRIPTS) or hit(_CHECKPOINTS, run.notes) is not None


def weight_decomposed(run: Run) -> bool:
    """Whether a row's kind, or its source, tells of weight-decomposed adapters."""
    return any(hit(_DECOMPOSED, run.text(name) or "") for name in ("finetune_kind", "source"))
