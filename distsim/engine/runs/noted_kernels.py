"""The kernels that the notes of a measured run tell of, in the place of its framework's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsim.engine.jobs.graphs import GROUPED, ITERATION, fused_experts, graphed
from distsim.engine.jobs.resolve import Setup
from distsim.interop.runs import (
    Run,
    expert_kernels,
    expert_routing,
    loss_notes,
    mixer_notes,
    overlap_notes,
    peak_notes,
    precision_notes,
    software_notes,
)
from distsim.interop.runs import graphs as run_graphs
from distsim.interop.runs.adapter_notes import mlp_in_one
from distsim.interop.runs.attention import masks_densely
from distsim.interop.runs.fusions import (
    compiles_loss,
    composes_loss,
    composes_rotation,
    fuses_norms,
    fuses_rotation,
    overwrites_logits,
)
from distsim.interop.runs.own_modules import (
    multiplies_by_einsum,
    rotates_pairs,
    writes_gelu,
    writes_norms,
    writes_rms_norms,
    writes_silu,
    writes_softmax,
)
from distsim.interop.runs.remat import unrolls_layers

Told = tuple[tuple[Callable[[Run], bool], dict[str, Any]], ...]
TOLD: Told = (
    (precision_notes.narrow_head, {"narrow_head": True}),
    (expert_routing.sends_once, {"expert_order": "fused"}),
    (expert_routing.sends_each, {"expert_order": "around"}),
    (expert_kernels.fuses_routers, {"routing": "fused"}),
    (expert_kernels.composes_routers, {"routing": "composed"}),
    (software_notes.deterministic, {"deterministic": True}),
    (software_notes.blocking, {"launches": "blocking"}),
    (masks_densely, {"attention_mask": "always"}),
    (peak_notes.keeps_cache, {"recompute_caches": True}),
    (unrolls_layers, {"residuals": "fused"}),
    (expert_kernels.leaves_tiles, {"expert_tiles": "usual"}),
    (expert_kernels.fits_tiles, {"expert_tiles": "fitted"}),
)
"""What notes may say, and the kernels that it means; the later wins."""
TOLD_OF_MEGATRON: Told = (
    (expert_routing.gathers_all, {"expert_gathers": "group"}),
    (compiles_loss, {"loss_kernel": "steps"}),
    (
        overwrites_logits,
        {"loss_kernel": "one", "loss_exchange": "gathered", "loss_kept_bytes": 2.0, "loss_transit_bytes": 0.0},
    ),
    (composes_loss, {"loss_kernel": "vocab-parallel"}),
    (composes_rotation, {"rope": "eager"}),
    (expert_kernels.loops_experts, {"expert_products": "sequential"}),
    (expert_kernels.groups_by_turbo, {"expert_products": "grouped"}),
    (expert_kernels.counts_on_gpu, {"expert_counts": "device"}),
    (mixer_notes.computes_delta_in_torch, {"delta_rule": "torch"}),
    (software_notes.deterministic, {"delta_rule": "torch"}),  # Megatron core ssm/gated_delta_net.py: FLA's is not
)
SLICES = {"expert_products": "modules", "expert_modules": "one", "expert_slices": True}
TOLD_OF_MODULES: Told = (
    (expert_kernels.slices_experts, SLICES),
    (expert_kernels.groups_experts, {"expert_products": "grouped", "expert_modules": "one"}),
    (expert_kernels.groups_by_torch, {"expert_kernel": "torch", "expert_index": "indexed", "routing": "composed"}),
)
"""What notes may say of experts that are modules in the framework's profile."""
TOLD_OF_PLAIN_TORCH: Told = (
    (writes_norms, {"layernorm": "written"}),
    (writes_rms_norms, {"norm": "eager", "norm_weight_fp32": True}),
    (writes_gelu, {"activation": "eager"}),
    (writes_silu, {"gate_tensors": 2}),
    (writes_softmax, {"softmax_written": True}),
    (multiplies_by_einsum, {"linears": "einsum"}),
    (rotates_pairs, {"rope_pairs": True}),
    (loss_notes.reads_narrow_logits, {"loss_upcast": False}),
    (loss_notes.reads_wide_logits, {"loss_upcast": True}),
)
"""What notes may say of modules of elementary operations, of which a compiler makes kernels."""
TOLD_OF_EXPERTS: Told = (
    (expert_kernels.loops_experts, {"expert_products": "modules"}),
    (expert_kernels.slices_experts, SLICES),
)
TOLD_OF_TORCH: Told = (
    (fuses_norms, {"norm": "fused"}),
    (fuses_rotation, {"rope": "fused"}),
    (mixer_notes.computes_delta_in_torch, {"delta_rule": "torch"}),
    (mixer_notes.compiles_streams, {"streams": "fused"}),
    (mlp_in_one, {"activation": "fused", "activation_overwrites": True}),
    (loss_notes.widens_masked, {"loss_upcast": True}),
)


def told_kernels(run: Run, words: Told) -> dict[str, Any]:
    """The kernels of a table whose words a run's notes have."""
    found: dict[str, Any] = {}
    for says, kernels in words:
        found |= kernels if says(run) else {}
    return found


def told_of_software(run: Run, setup: Setup, experts: str) -> dict[str, Any]:
    """Kernels of which notes tell where the framework's family has such; ``experts`` is how it multiplies those of a
    rank (``expert_products``)."""
    family = setup.framework.family
    if family == "megatron":
        return told_kernels(run, TOLD_OF_MEGATRON)
    if family != "torch":
        return {}
    found = told_kernels(run, TOLD_OF_TORCH)
    found |= told_kernels(run, TOLD_OF_MODULES if experts == "modules" else TOLD_OF_EXPERTS)
    if setup.compiled or setup.kernels.compiler != "none":
        return found | loss_notes.uncompiled_loss(run)
    return found | told_kernels(run, TOLD_OF_PLAIN_TORCH)


def _graphs_at_scale(setup: Setup) -> str | None:
    """Graphs of whole steps where the framework's scripts capture them on so many GPUs, whose share of a batch is
    small, and its recipes hold none."""
    least = setup.framework.usual.get("graphs_from_gpus")
    return "iteration" if least and setup.layout.gpus >= least and setup.kernels.graphs == "none" else None


def noted_kernels(run: Run, setup: Setup) -> dict[str, Any]:
    """The kernels that a measured run's notes tell of, where its framework has such."""
    framework, found = setup.framework, dict[str, Any]()
    kind = run_graphs.graphs_of(run) or _graphs_at_scale(setup)
    if kind in ("none", *framework.supports.cuda_graphs):
        own = framework.kernels.model_dump()  # not what a recipe has with other graphs
        apart = {} if kind == "iteration" else {name: own[name] for name in (*ITERATION, *GROUPED, "expert_overlap")}
        found = {**apart, **graphed(kind, setup.accelerator, setup.precision)}
    elif kind == "iteration":
        found = {"graphs": kind}
    for kernels in (expert_kernels.library_experts, expert_kernels.torchtitan_experts):
        found |= kernels(run)
    if not framework.supports.expert_overlap:
        return found
    if expert_kernels.stashed(run):
        found |= ITERATION
    if expert_kernels.fused_experts(run):
        found |= fused_experts(setup.precision)
    overlaps = overlap_notes.overlaps_experts(run)
    return found if overlaps is None else {**found, "expert_overlap": overlaps}
