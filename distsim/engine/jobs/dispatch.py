"""How tokens go to the ranks of their experts: as a job asks for, where its framework has that way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distsim.arrays import Number, ceil_div
from distsim.engine.jobs.graphs import ABLE
from distsim.errors import DistsimError
from distsim.formulas.expert_buffers import DEEPEST_QUEUE, ENTRIES_PER_TOKEN, TOKENS_ALIGNED, hybridep_queue_depth

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup
    from distsim.specs.accelerator import Accelerator
    from distsim.specs.cluster import Cluster
    from distsim.specs.framework import Framework
    from distsim.specs.job import Job
    from distsim.specs.kernels import Kernels
    from distsim.specs.layout import Layout
    from distsim.specs.model import Model

OPTION = "--expert-dispatcher"
EACH, GATHERED, DEEPEP, HYBRIDEP = "alltoall", "allgather", "deepep", "hybridep"
"""The first sends a token to each of its experts, the second to all ranks that have some; the others send it once
(specs/traffic.py)."""
ONCE = (DEEPEP, HYBRIDEP)
REQUIREMENTS = "deepseek-ai/DeepEP README, requirements: Ampere, Hopper or newer, NVLink for intranode communication"
QUEUES = (
    "deepseek-ai/DeepEP, branch hybrid-ep, csrc/hybrid_ep/buffer/internode_doca.cu: queues of at most 65,535 entries"
)


def with_dispatcher(
    job: Job, framework: Framework, kernels: Kernels, model: Model, chip: Accelerator
) -> tuple[Framework, Kernels]:
    """The framework and kernels with the dispatcher that a job asks for; raises DistsimError where there is none."""
    asked = job.expert_dispatcher
    if asked is None:
        return framework, kernels
    if model.experts is None:
        raise DistsimError(f"{OPTION} has no effect: {model.name} has no experts", f"leave {OPTION} out")
    if asked not in framework.supports.dispatchers:
        raise _lacking(asked, framework)
    if asked in ONCE and not can_send_once(chip):
        told = f"{asked} needs links between GPUs of a node and no older chips than Ampere; {chip.name} lacks that"
        raise DistsimError(told, f"use {OPTION} {EACH}, or leave it out", f"source: {REQUIREMENTS}")
    copies = "once" if asked in ONCE else "each"
    # a search and advice resolve a job again with a framework that sends as asked already: only its kernels are its own
    order = {"expert_order": _order(copies), "expert_order_alone": kernels.expert_order}
    order |= {"expert_gathers": "group"} if asked == GATHERED else {}
    traffic = framework.traffic.model_copy(update={"expert_copies": copies})
    return framework.model_copy(update={"traffic": traffic}), kernels.model_copy(update=order)


def can_send_once(chip: Accelerator) -> bool:
    """Whether DeepEP's and HybridEP's kernels run on a chip."""
    return chip.link is not None and chip.peak.bf16 is not None


def _order(copies: str) -> str:
    """Who puts tokens in the order of experts (specs/expert_kernels.py)."""
    return "fused" if copies == "once" else "around"


def sends_once(framework: Framework, kernels: Kernels) -> bool:
    """Whether a token goes once to each node or rank that has experts of its own."""
    return framework.traffic.expert_copies == "once" and kernels.expert_order == "fused"


def dispatcher_of(setup: Setup) -> dict[str, str]:
    """The dispatcher of experts that are on several ranks, by the name of the job option: as stated, or what the
    framework's recipe has."""
    if setup.model.experts is None or setup.layout.ep == 1:
        return {}
    return {"expert_dispatcher": dispatcher_named(setup.job, setup.framework, setup.kernels, setup.cluster)}


def dispatcher_named(job: Job, framework: Framework, kernels: Kernels, cluster: Cluster) -> str:
    """What sends tokens to experts where these are on several ranks."""
    usual = GATHERED if kernels.expert_gathers == "group" else EACH
    return job.expert_dispatcher or (usual_once(cluster) if sends_once(framework, kernels) else usual)


def usual_once(cluster: Cluster) -> str:
    """What sends tokens once: DeepEP between nodes of eight GPUs, HybridEP in domains of several nodes
    (docs.nvidia.com/nemo/megatron-bridge, MoE hardware configuration)."""
    return HYBRIDEP if cluster.domain > cluster.gpus_per_node else DEEPEP


def ranks_of(layout: Layout) -> Number:
    """Ranks among which tokens are dispatched: those that share an expert each have its tokens (NVIDIA/Megatron-LM
    moe/token_dispatcher.py, MoEFlexTokenDispatcher: tp_ep_group)."""
    return layout.ep * layout.etp


def tokens_of(layout: Layout) -> Number:
    """Tokens of one rank that are dispatched: its part of the sequence."""
    return layout.tokens / layout.tp


def domains_of(layout: Layout, cluster: Cluster) -> Number:
    """Domains of links that those ranks are in, as HybridEP finds them: neighbours, as many as fit in each."""
    return ceil_div(ranks_of(layout), cluster.domain)


def queues_hold(kind: str, layout: Layout, cluster: Cluster) -> Number:
    """Whether the queues between domains hold the tokens of a rank; an array over layouts where these are."""
    if kind != HYBRIDEP:
        return True
    held = hybridep_queue_depth(tokens_of(layout)) <= DEEPEST_QUEUE
    return held | (layout.ep == 1) | (domains_of(layout, cluster) == 1)


def refuse_long_queues(kind: str, layout: Layout, cluster: Cluster) -> None:
    """Raise DistsimError for more tokens than HybridEP sends between domains at once."""
    if queues_hold(kind, layout, cluster):
        return
    most = (DEEPEST_QUEUE - 1) // ENTRIES_PER_TOKEN // TOKENS_ALIGNED * TOKENS_ALIGNED
    raise DistsimError(
        f"{HYBRIDEP} sends at most {most:,} tokens of a rank to other NVLink domains, but a micro-batch has "
        f"{tokens_of(layout):,.0f}, and {ranks_of(layout)} expert parallel ranks are in {domains_of(layout, cluster)} "
        f"domains of {cluster.domain} GPUs",
        f"use a smaller --micro-batch, --cp, --tp with --sequence-parallel, an --ep of {cluster.domain} or less, "
        f"or {OPTION} {EACH} or {DEEPEP}",
        f"source: {QUEUES}",
    )


def dispatcher_note(job: Job, layout: Layout) -> str:
    """What a job that states it has to know: where it has no effect."""
    shared = job.expert_dispatcher == GATHERED and layout.etp > 1
    unread = job.expert_dispatcher is not None and layout.ep == 1 and not shared
    return f"{OPTION} {job.expert_dispatcher} has no effect with ep 1" if unread else ""


def _lacking(asked: str, framework: Framework) -> DistsimError:
    known = framework.supports.dispatchers
    mend = f"use one of {', '.join(known)}" if known else f"leave {OPTION} out, or name another framework, e.g. {ABLE}"
    source = framework.source.get("supports.dispatchers")
    told = f"the profile {framework.name} has no expert dispatcher {asked}"
    return DistsimError(told, mend, *([f"source: {source}"] if source else []))
