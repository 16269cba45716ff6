"""What notes of a measured run say of its loss, which its peak depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distsim import catalog
from distsim.engine.jobs.profile import with_kernels
from distsim.engine.jobs.resolve import Setup
from distsim.engine.runs.hand_written import hand_written
from distsim.interop.runs import Run
from distsim.interop.runs.fusions import compiles_loss
from distsim.interop.runs.loss_notes import keeps_loss_alone
from distsim.interop.runs.peak_notes import adds_techniques, chunks_loss, returns_loss_alone, takes_loss_at_once
from distsim.interop.runs.software_notes import own_loop, qlora_on_deepspeed

COMPILED_TRANSIT_BYTES = 6.0
"""Per logit in transit through a loss that torch compiles step by step: one in bf16, one in fp32 (NVIDIA/Megatron-LM
core/fusions/fused_cross_entropy.py, on in-place semantics under torch.compile)."""


def with_loss_of(run: Run, setup: Setup) -> Setup:
    """The setup as memory sees it, with the loss that notes tell of."""
    told = loss_of(run, setup)
    where = f"framework {setup.framework.name}, loss"
    return replace(setup, kernels=with_kernels(setup.kernels, told, where)) if told else setup


def loss_of(run: Run, setup: Setup) -> dict[str, Any]:
    """Kernels of a loss in chunks or of one that is compiled, where the notes tell of it; only memory sees these."""
    framework = setup.framework
    scripts = framework.usual.get("loss_alone") and framework.kernels.compiler != "none"
    if scripts and returns_loss_alone(run) and not chunks_loss(run):
        return {"loss_gives": "nothing"}
    if takes_loss_at_once(run):
        return {"loss_sliced": False}
    if keeps_loss_alone(run):
        alone = {"loss_gives": "nothing"} if framework.usual.get("loss_alone") or hand_written(run, framework) else {}
        return {"loss_holds_logits": False, **alone}
    if own_loop(run):
        return {"loss_holds_logits": "narrow"}
    if qlora_on_deepspeed(run):
        return {"loss_upcast": False}
    if setup.framework.family == "megatron" and compiles_loss(run):
        return {"loss_transit_bytes": COMPILED_TRANSIT_BYTES}
    recipe = setup.framework.usual_loss_chunks and not adds_techniques(run)
    if recipe or chunks_loss(run):
        chunked = catalog.load("losses", "chunked")
        return {**chunked.kernels, **(chunked.compiled if setup.compiled else {})}
    return {}
