"""The recipe of precision of a measured run: what its software really does under the name in its cell."""

from __future__ import annotations

from distsim import catalog
from distsim.engine.runs.adapters import on_narrow_base
from distsim.engine.runs.software import preset_of
from distsim.engine.runs.years import recipe_year, year_ended
from distsim.interop.runs import Run, precision_notes
from distsim.interop.runs.adapter_notes import leaves_norms_narrow
from distsim.interop.runs.precision_names import (
    HALF_AUTOCAST,
    MIXED,
    NARROW_IN_MEMORY,
    PRECISIONS,
    WHOLE_NUMBERS,
    precision_like,
)
from distsim.interop.runs.sharding import by_torch
from distsim.interop.runs.software_notes import zero_stage
from distsim.interop.runs.tuning import has_adapters
from distsim.preset_files import plain
from distsim.specs.framework import Framework

TF32_UNTIL = 2022.5
"""Until when PyTorch multiplied fp32 tensors on TF32 units unless told otherwise: release 1.12 of June 2022."""
GRADIENT_BUFFERS = ("megatron",)
"""Families of frameworks that add gradients up in a buffer, in the parameters' format or in fp32 (Megatron-LM's
--accumulate-allreduce-grads-in-fp32 and --main-grads-dtype, Megatron-Bridge's grad_reduce_in_fp32)."""
FP32_WEIGHTS = ("amp-bf16", "fsdp-bf16", "jax-bf16")
"""Recipes of bf16 whose weights are fp32, which notes may deny; those of FSDP's shards stay fp32 all the same."""
NARROW_WEIGHTS, AUTOCAST = ("bf16", "pure-bf16"), "amp-bf16"
"""The others, and what stands for them where notes deny that."""
REDUCED = {("pure-bf16", "fp32"): "fsdp-bf16-weights", ("fsdp-bf16", "bf16"): "fsdp-pure"}
"""Recipes where FSDP is told to reduce gradients in another format than usual (MixedPrecision's reduce_dtype)."""
PACKED = "qlora"
"""The kind of fine-tuning whose frozen weights are of 4 bits."""


def precision_of(run: Run, framework: Framework, default: str = "bf16") -> str:
    """The recipe of a row: what its framework really does under the name in the cell, or under that of the variant
    which notes tell, with weights and gradients in the formats that they tell."""
    recipe = recipe_named(run, framework)[0] or _unsaid(run, framework, default)
    if told := _uncast(run, framework, recipe) or _fp32_products(run, recipe):
        return told
    recipe = _variant(run, framework, recipe)
    buffered = precision_notes.gradients_of(run) if framework.family in GRADIENT_BUFFERS else None
    if recipe == "bf16" and buffered:
        return "bf16" if buffered == "bf16" else "bf16-fp32-grads"
    real = _under_its_name(framework, recipe)
    if told := _by_weights(run, framework, real) or _by_reduction(run, real):
        return told
    told = f"{real}-{buffered}-grads"
    return told if buffered and catalog.knows("precisions", told) else real


def _unsaid(run: Run, framework: Framework, default: str) -> str:
    """The recipe of a row that names none: the first that its software usually runs and its chip has units for, or the
    ``default``, in fp16 where the chip has no bf16."""
    chip = preset_of(run)
    formats: list[str] = framework.usual.get("unsaid_precisions", [])
    usual = next((one for one in formats if chip is not None and getattr(chip.peak, one) is not None), None)
    emulated = framework.family == "jax"  # XLA does bf16 in fp32 there, and configurations name no other
    return usual or (default if emulated or _has_bf16(run) else default.replace("bf16", "fp16"))


def _uncast(run: Run, framework: Framework, recipe: str) -> str | None:
    """The recipe of adapters where nothing casts their products, in spite of the framework; None where it does as
    usual. Without autocast, peft's preparation of a quantised model leaves all in fp32: embedding and norms are made
    so, and bitsandbytes' layers compute in what they are given. Autocast to fp16 casts no frozen weights that are of 16
    bits already."""
    rules, kind = framework.adapters, (run.text("finetune_kind") or "").lower()
    if recipe == "bf16" and rules.others_fp32 and precision_notes.denies_autocast(run):
        return "fp32" if PACKED in kind else "pure-bf16"
    half = (run.text("finetune_kind") == "lora" and precision_notes.weighs_half(run)) or leaves_norms_narrow(run)
    return recipe if recipe == "fp16" and rules.fp32 and half else None


def _fp32_products(run: Run, recipe: str) -> str | None:
    """Whether cell or notes say that products of fp32 ran on TF32 units or not, as a recipe; None where neither
    tells."""
    rounds = precision_notes.rounds_products(run.text("precision"), run.notes) if recipe in ("fp32", "tf32") else None
    return None if rounds is None else "tf32" if rounds else "fp32"


def _variant(run: Run, framework: Framework, recipe: str) -> str:
    """The recipe by the name of its variant, as far as notes, cells and the year tell variants apart; most have a name
    only in frameworks whose presets say what they are (``usual.precision_<variant>``)."""
    usual, torch = framework.usual, framework.family == "torch"
    if recipe == "fp16" and torch and not has_adapters(run) and precision_notes.autocasts_to_half(run):
        recipe = "amp-fp16"
    elif recipe == "fp32" and recipe_year(run) < TF32_UNTIL:
        recipe = "tf32"
    if precision_notes.exchanges_in_bf16(run) and f"precision_{recipe}_pure" in usual:
        recipe += "_pure"
    elif f"precision_{recipe}_gathered_wide" in usual and year_ended(run) <= usual["gathers_wide_until"]:
        recipe += "_gathered_wide"
    if recipe == "fp8" and torch and (library := precision_notes.torchao_recipe(run)):
        return library
    if recipe == "fp8" and "precision_fp8_rowwise" in usual:
        recipe += precision_notes.scaled_by_rows(run)
    if recipe == "nvfp4" and "precision_nvfp4_mixed" in usual:
        recipe += precision_notes.wide_tail(run)
    return f"{recipe}_sharded" if zero_stage(run) and f"precision_{recipe}_sharded" in usual else recipe


def _under_its_name(framework: Framework, recipe: str) -> str:
    """The preset that a framework, or a recipe of its own that replays take, has under a name."""
    replayed = {name: real for known in framework.recipes for name, real in known.replayed.items()}
    return replayed.get(recipe) or str(framework.usual.get(f"precision_{recipe.replace('-', '_')}", recipe))


def _by_weights(run: Run, framework: Framework, real: str) -> str | None:
    """The recipe where notes tell that weights are in another format than in the ``real`` one; None where they are
    not."""
    sharded = zero_stage(run)
    if real in FP32_WEIGHTS and (base := on_narrow_base(run)):
        return base
    if real in FP32_WEIGHTS and precision_notes.weighs_16_bits(run) and not run.count("zero_stage"):
        return "pure-bf16"
    unsharded = framework.family == "torch" and not sharded  # what shards has a format of its own
    return AUTOCAST if real in NARROW_WEIGHTS and unsharded and precision_notes.casts_wide_weights(run) else None


def _by_reduction(run: Run, real: str) -> str | None:
    """The recipe where torch's FSDP is told to reduce gradients in another format than in the ``real`` one."""
    return REDUCED.get((real, precision_notes.gradients_of(run) or "")) if by_torch(run) else None


def assumed_precision(run: Run, framework: Framework) -> str:
    """Which recipe stands for a cell that names none exactly; nothing where it does, or is blank."""
    return recipe_named(run, framework)[1]


def recipe_named(run: Run, framework: Framework) -> tuple[str | None, str]:
    """The recipe that a cell names, None where it names none; and what was assumed where it is not that name."""
    cell = plain(run.text("precision") or "")
    if not cell or f"precision_{cell}" in framework.usual:
        return cell or None, ""
    if (NARROW_IN_MEMORY.search(cell) or cell in WHOLE_NUMBERS) and has_adapters(run):
        return None, ""  # of the frozen weights
    if cell in MIXED:
        wide = "bf16" if _has_bf16(run) else "fp16"
        return wide, f"precision {cell!r} names no format: timed as {wide}"
    if cell in HALF_AUTOCAST and framework.family == "torch":
        return "amp-fp16", ""
    if known := framework.precisions.get(cell) or PRECISIONS.get(cell):
        whole = cell in WHOLE_NUMBERS and cell not in framework.precisions
        return known, f"precision {cell!r} has no recipe of its own: timed as {known}" if whole else ""
    if catalog.knows("precisions", cell):
        return str(catalog.load("precisions", cell).name), ""
    like = precision_like(cell)
    if like in PRECISIONS and f"precision_{like}" not in framework.usual:
        like = PRECISIONS[like]
    return like, f"precision {cell!r} is not a distsim recipe: {f'timed as {like}' if like else 'treated as blank'}"


def _has_bf16(run: Run) -> bool:
    """Whether the run's chip states a rate for bf16; taken for granted where it has no preset."""
    gpu = run.text("gpu") or ""
    return not catalog.knows("gpus", gpu) or catalog.load("gpus", gpu).peak.bf16 is not None
