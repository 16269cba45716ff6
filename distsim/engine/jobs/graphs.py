"""CUDA graphs and exchanges of experts beside computation, as a job asks for them: the kernels that they bring, what
frameworks refuse, and which layouts can have them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from distsim.architectures import traits_of
from distsim.errors import DistsimError
from distsim.specs.modules import OF_EXPERTS
from distsim.units import HALF_BYTES

if TYPE_CHECKING:
    from distsim.specs.accelerator import Accelerator
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job
    from distsim.specs.kernels import Kernels
    from distsim.specs.layout import Layout
    from distsim.specs.model import Model
    from distsim.specs.precision import Precision

ITERATION = {"expert_counts": "device"}
"""What graphs of whole steps need of experts: no host may ask where tokens went (NVIDIA/Megatron-LM
core/transformer/moe: experts padded to a capacity, or moe_paged_stash with a budget of tokens per rank)."""
GROUPED = {
    "expert_products": "grouped", "expert_kernel": "library", "expert_bias": "fused", "expert_clamp": "fused"
}  # fmt: skip
"""Experts in fused grouped kernels, biases and clamps in them (NVTE_CUTEDSL_FUSED_GROUPED_MLP)."""
COUNTED = {"expert_products": "grouped", "expert_kernel": "torch"}
"""Experts multiplied by counts that the GPU has: one kernel for all of them, whatever the operands. cuBLASLt's, whose
products in 16 bits were slower than torch's but at the largest size in CUDA 13.2 (pytorch/pytorch pull request 177037),
and are 3% faster on a GB300 in 13.4 (196645)."""
MOST_PREDICTED = 1
"""Layers of multi-token prediction that go with overlapped exchanges (NVIDIA/Megatron-LM transformer_config.py)."""
OPEN = {"expert_overlap": None}
"""Options that a layout on a single rank cannot have, left open."""
PARTIAL = ("routers", "modules")
"""Graphs of parts of layers, which full recomputation and offloaded activations rule out."""
WORDS = {"graphs": "CUDA graphs of {}", "expert_overlap": "overlap of expert all-to-all"}
ABLE = "megatron-core"
"""A framework that has all of these, to name where another one has not."""


def fused_experts(precision: Precision) -> dict[str, Any]:
    """The fused grouped kernels of experts where a precision has them: operands with a scale per block alone
    (NVIDIA/TransformerEngine pytorch/ops/fused/grouped_mlp.py fuses under recipes of MXFP8 and NVFP4)."""
    return GROUPED if precision.scales_blocks else {}


def graphed(graphs: str, chip: Accelerator, precision: Precision) -> dict[str, Any]:
    """The kernels that CUDA graphs bring on a chip."""
    if graphs != "iteration":
        return {"graphs": graphs}
    counted = {**COUNTED, **fused_experts(precision)} if traits_of(chip).device_counts else {}
    return {"graphs": graphs, **ITERATION, **counted}


def ruled_out(job: Job, kernels: Kernels, full: bool, offload: tuple[str, ...], packed: bool = False) -> dict[str, Any]:
    """What recomputation of whole layers, activations in host memory or ``packed`` samples take off kernels that a
    recipe brings and nobody asked for: the software refuses both together, or its recipes of packed samples do without
    (where these begin differs from batch to batch), so who trains so has turned them off."""
    found: dict[str, Any] = {}
    offloads = "activations" in offload and moves_captured(kernels.offload_modules)
    if job.cuda_graphs is None and kernels.graphs in PARTIAL and (full or offloads or packed):
        found["graphs"] = "none"
    if job.expert_overlap is None and kernels.expert_overlap and full:
        found["expert_overlap"] = False
    return found


def moves_captured(modules: Collection[str]) -> bool:
    """Whether activations that are offloaded, all or those of modules, are of what CUDA graphs of modules capture."""
    return not modules or not set(modules) <= set(OF_EXPERTS)


def settled(
    job: Job, kernels: Kernels, framework: Framework, model: Model, chip: Accelerator, precision: Precision,
    layout: Layout, offload: tuple[str, ...],
) -> tuple[Kernels, list[str]]:  # fmt: skip
    """The kernels with what a job asks for and without what its layout rules out; and a note for each of these."""
    if job.cuda_graphs is not None or job.expert_overlap is not None:
        kernels = kernels.model_copy(update=asked_kernels(job, framework, model, chip, precision))
    refuse_asked(job, layout)
    full = layout.recompute_layers != 0
    packed = layout.sample_tokens > 0 and "routers" in framework.supports.cuda_graphs  # MLPerf's keep theirs
    gone = ruled_out(job, kernels, full, offload, packed)
    why = f"not possible with {'--recompute full' if full else '--offload activations'}"
    if packed and not full:
        why = "its recipes of packed samples (--sample-tokens) have none"
    words = [WORDS[name].format(kernels.graphs) for name in gone]
    notes = [f"no {some}, unlike in {framework.name}'s recipe: {why}" for some in words]
    return (kernels.model_copy(update=gone) if gone else kernels), notes


def asked_kernels(
    job: Job, framework: Framework, model: Model, chip: Accelerator, precision: Precision
) -> dict[str, Any]:
    """The kernels that a job's own words bring; raises for what its framework or its model does not have."""
    supports, found = framework.supports, {}
    if job.cuda_graphs is not None:
        _refuse_graphs(job, framework, model, chip)
        found = graphed(job.cuda_graphs, chip, precision)
    if job.expert_overlap is None:
        return found
    if job.expert_overlap:
        problem, mend = "", "leave --expert-overlap out"
        if not supports.expert_overlap:
            problem = f"{framework.name} does not overlap expert all-to-all with computation"
            mend = f"leave --expert-overlap out, or name another framework, e.g. {ABLE}"
        elif model.experts is None:
            problem = f"--expert-overlap has no effect: {model.name} has no experts"
        elif model.mtp_trained > MOST_PREDICTED:
            problem = (
                f"{framework.name} overlaps expert all-to-all with at most one layer of --mtp, not {model.mtp_trained}"
            )
            mend = "use --mtp 1, or leave --expert-overlap out"
        elif job.expert_dispatcher == "allgather":
            problem = f"{framework.name} overlaps expert all-to-all, not what its allgather dispatcher does"
            mend = "leave --expert-overlap or --expert-dispatcher out"
        elif precision.activation_bytes > HALF_BYTES:
            problem = f"{framework.name} overlaps expert all-to-all in bf16 and fp16, not in {precision.name}"
        if problem:
            raise DistsimError(problem, mend, *_source(framework, "expert_overlap"))
    return {**found, "expert_overlap": job.expert_overlap}


def captures(chip: Accelerator) -> bool:
    """Whether an accelerator runs CUDA graphs."""
    return traits_of(chip).cuda_graphs


def _refuse_graphs(job: Job, framework: Framework, model: Model, chip: Accelerator) -> None:
    able = framework.supports.cuda_graphs
    if job.cuda_graphs == "routers" and model.experts is None:
        raise DistsimError(
            f"--cuda-graphs routers has no effect: {model.name} has no experts", "use --cuda-graphs modules"
        )
    if job.cuda_graphs != "none" and not captures(chip):
        raise DistsimError(f"{chip.name} does not support CUDA graphs", "leave --cuda-graphs out")
    modules = (job.offload_modules or "").split(",") if job.offload_modules else ()
    if job.cuda_graphs in PARTIAL and "activations" in (job.offload or "") and moves_captured(modules):
        raise DistsimError(
            f"--cuda-graphs {job.cuda_graphs} cannot be combined with --offload activations",
            f"use --cuda-graphs iteration, leave one out, or add --offload-modules {','.join(OF_EXPERTS)}",
        )
    if job.cuda_graphs in ("none", *able):
        return
    known = f"it supports: --cuda-graphs {', '.join(able)}" if able else f"leave it out, or name another, e.g. {ABLE}"
    raise DistsimError(f"{framework.name} does not support --cuda-graphs {job.cuda_graphs}", known)


def _source(framework: Framework, figure: str) -> list[str]:
    found = framework.source.get(f"supports.{figure}")
    return [f"source: {found}"] if found else []


class AskedRule(NamedTuple):
    """What an option that a job states needs of its layout; ``holds`` is a mask over arrays of layouts."""

    asked: Callable[[Job], bool]
    holds: Callable[[Layout], Any]
    problem: Callable[[Layout], str]
    mend: str


def _interleaved(y: Layout) -> Any:
    return (y.schedule == "interleaved-1f1b") | (y.schedule == "interleaved-1f1b-overlap")


def _pairs(y: Layout) -> Any:
    """Whether the schedule itself runs exchanges beside another micro-batch's computation."""
    return (y.schedule == "dualpipe") | (y.schedule == "dualpipe-v")


def _pairs_not(y: Layout) -> Any:
    return (y.schedule != "dualpipe") & (y.schedule != "dualpipe-v")


def _overlaps(job: Job) -> bool:
    return job.expert_overlap is True


def _apart_from_full(graphs: str) -> AskedRule:
    """The rule of graphs of parts of layers."""
    return AskedRule(
        lambda job: job.cuda_graphs == graphs,
        lambda y: y.recompute_layers == 0,
        lambda y: f"--cuda-graphs {graphs} cannot be combined with --recompute full",
        "use --cuda-graphs iteration, or --recompute selective or none",
    )


ASKED: tuple[AskedRule, ...] = (
    AskedRule(
        _overlaps,
        lambda y: y.ep > 1,
        lambda y: "--expert-overlap needs experts on several ranks, but ep is 1",
        "add --ep 2 or more, or leave --expert-overlap out",
    ),
    AskedRule(
        _overlaps,
        lambda y: (y.pp == 1) | _pairs_not(y),
        lambda y: f"--expert-overlap is for interleaved chunks; {y.schedule} overlaps expert all-to-all anyway",
        "leave --expert-overlap out",
    ),
    AskedRule(
        _overlaps,
        lambda y: (y.pp == 1) | _pairs(y) | ((y.vpp > 1) & _interleaved(y)),
        lambda y: (
            f"--expert-overlap with {y.pp} pipeline stages needs several model chunks on each, but vpp is {y.vpp}"
        ),
        "add --vpp 2 or more, or leave --expert-overlap out",
    ),
    AskedRule(
        lambda job: job.expert_overlap is False,
        lambda y: (y.pp == 1) | (y.ep == 1) | _pairs_not(y),
        lambda y: f"--no-expert-overlap has no effect: {y.schedule} overlaps expert all-to-all with computation",
        "leave it out, or use another --schedule",
    ),
    AskedRule(
        _overlaps,
        lambda y: y.recompute_layers == 0,
        lambda y: "--expert-overlap cannot be combined with --recompute full",
        "use --recompute selective or none, or leave --expert-overlap out",
    ),
    *map(_apart_from_full, PARTIAL),
    AskedRule(
        lambda job: job.tp_comm_overlap is True,
        lambda y: (y.tp == 1) | (y.sequence_parallel == 1),
        lambda y: f"--tp-comm-overlap needs sequence parallelism over tp {y.tp}",
        "leave out --no-sequence-parallel and --tp-mode, or leave out --tp-comm-overlap",
    ),
)
"""NVIDIA/Megatron-LM core/transformer/transformer_config.py, checks of overlap_moe_expert_parallel_comm and of
cuda_graph_impl; training/arguments.py, that of tp_comm_overlap."""


def refuse_asked(job: Job, layout: Layout) -> None:
    """Raise what a layout cannot have of what its job asks for."""
    broken = [rule for rule in ASKED if rule.asked(job) and not rule.holds(layout)]
    if broken:
        raise DistsimError(
            broken[0].problem(layout), broken[0].mend, *(f"also: {rule.problem(layout)}" for rule in broken[1:])
        )


def able(job: Job, layout: Layout) -> Any:
    """Mask over the layouts of an array-valued ``layout``: True where they can have what the job asks for."""
    mask: Any = True
    for rule in ASKED:
        if rule.asked(job):
            mask = mask & rule.holds(layout)
    return mask
