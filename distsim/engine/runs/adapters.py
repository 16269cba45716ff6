"""What a run that trains adapters leaves out: which products have them, where notes count their parameters, and
whether anything is computed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distsim.engine.jobs.tuning_targets import EXPERT_MATRICES, NAMED
from distsim.interop.runs import Run
from distsim.interop.runs.adapter_notes import (
    all_narrow,
    checkpoints_itself,
    counted_parameters,
    has_kernels,
    leaves_base,
    mlp_in_one,
    narrow_base,
    told_to_checkpoint,
    weight_decomposed,
)
from distsim.interop.runs.tuning import has_adapters
from distsim.specs.framework import Framework
from distsim.specs.model import Model
from distsim.specs.products import FUSED_EXPERTS, mixer_products
from distsim.specs.tuning import targets_named

SETS = ("q,v", "q,k,v", "attention", "mlp", "all-linear")
"""What adapters are usually on."""
AS_MANY = 0.02
"""Share by which the count of a set may be off, as "40M" is of 39,976,960."""


def summed_in_products(run: Run) -> dict[str, Any]:
    """How kernels like Unsloth's run adapters: by functions whose products add them to the base's results."""
    if not has_kernels(run):
        return {}
    return {"summed": "product", "own_inputs": False} | ({"mlp": "adding function"} if mlp_in_one(run) else {})


def undropped(run: Run, framework: Framework, model: Model, options: Mapping[str, Any]) -> dict[str, float]:
    """No dropout, which no row tells of, where adapters are on experts that are tensors: peft has none there; or where
    kernels run them that drop nothing (axolotl refuses dropout beside them until 2026, utils/schemas/validation.py)."""
    if has_kernels(run):
        return {"lora_dropout": 0.0}
    named = options.get("lora_targets")
    if model.experts is None or framework.adapters.experts != "tensors" or not named:
        return {}
    targets = set(targets_named(named).split(","))
    own = {*EXPERT_MATRICES, "router"} if model.family in FUSED_EXPERTS else set()
    return {"lora_dropout": 0.0} if targets & {NAMED, *own} else {}


def held_narrow(run: Run, framework: Framework) -> dict[str, bool]:
    """What of adapters, and of what is frozen beside quantised weights, a run held in 16 bits in spite of its
    framework; nothing where its notes tell of none."""
    rules = framework.adapters
    if rules.fp32 and all_narrow(run):
        return {"fp32": False, "others_fp32": False}
    return {"others_fp32": False} if rules.others_fp32 and leaves_base(run) else {}


def on_narrow_base(run: Run) -> str | None:
    """The recipe of adapters on frozen weights in bf16, which autocast does not cast; None where notes tell of none."""
    if not has_adapters(run) or not narrow_base(run):
        return None
    return "pure-bf16" if all_narrow(run) else "bf16"


def unasked_recompute(run: Run, framework: Framework, options: Mapping[str, Any]) -> dict[str, str]:
    """No recomputation, where weights that nothing prepared for 4 or 8 bits are tuned by transformers' Trainer alone,
    and no word tells of any."""
    if not framework.usual.get("trainer_or_loop") or checkpoints_itself(run):
        return {}
    if told_to_checkpoint(run) or "quantize" in options or "lora_rank" not in options:
        return {}
    return {"recompute": "none"}


def counted_targets(run: Run, model: Model, options: Mapping[str, Any]) -> dict[str, str]:
    """The products whose adapters have as many parameters as notes tell; nothing where none has, or products are named,
    or a layer is no plain one."""
    rank, said = options.get("lora_rank"), counted_parameters(run)
    plain = model.experts is None and model.latent_attention is None and not mixer_products(model)
    if not rank or "lora_targets" in options or said is None or not plain:
        return {}
    told, rank_told = said.parameters, int(rank) if said.rank is None else said.rank
    each = {name: rank_told * _widths(model, name) * model.layers for name in SETS}
    near = min(SETS, key=lambda name: abs(each[name] - told))
    return {"lora_targets": near} if abs(each[near] - told) <= AS_MANY * told else {}


def decomposed(run: Run, framework: Framework, model: Model, options: Mapping[str, Any]) -> dict[str, bool]:
    """DoRA where a row tells of it and its framework runs it; else its adapters are plain ones."""
    runs = framework.adapters.dora and model.experts is None and (run.count("tp") or 1) == 1
    return {"dora": True} if weight_decomposed(run) and runs and "lora_rank" in options else {}


def _widths(model: Model, named: str) -> int:
    """Columns and rows of a layer's products that have an adapter, together."""
    wide, heads, few = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    sides = {"q": heads, "k": few, "v": few, "o": heads, "up": model.ffn, "down": model.ffn}
    if model.gated:
        sides["gate"] = model.ffn
    return sum(wide + side for name, side in sides.items() if name in targets_named(named).split(","))
