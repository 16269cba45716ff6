"""What NCCL holds for the process groups of a rank, outside of torch's allocator."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.exchanges.flows import Span
from distsim.engine.exchanges.model import span_of
from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup
from distsim.engine.networks.spread import spread
from distsim.formulas.buffers import communicator_bytes, multicast_bytes

SWITCHED = "nvswitch"
"""The fabric on which all GPUs of a domain reach each other at once, and which reduces from Hopper on."""
MOST_RANKS = 8
"""Ranks of one domain up to which anybody measured; larger groups are taken to hold as much."""
FEWEST_RANKS = 3
"""Pairs leave nothing to the switch (vllm-project/vllm issue 9699: buffers from three GPUs on)."""


def communicator_buffers(setup: Setup, figures: Figures) -> Number:
    """Buffers of each group of several ranks, and of those that the switch between GPUs makes sums for."""
    overhead, traits = setup.framework.overhead, traits_of(setup.accelerator)
    sums, sends, whole = _summing(setup), _sending(setup), _whole(setup)
    source = setup.framework.source_of("overhead.communicator_bytes") or "preset"
    total = figures.use(
        "communicators", communicator_bytes, source, bytes_per_group=overhead.communicator_bytes,
        groups=sum(where(span.ranks > 1, 1, 0) for span in (*sums, *sends, *whole)),
    )  # fmt: skip
    if setup.cluster.fabric.kind != SWITCHED or not overhead.multicast or not traits.multicast_rank_bytes:
        return total
    near = (_together(setup, span) for span in (*sums, *whole[:1]))
    return total + figures.use(
        "communicators' buffers for the switch", multicast_bytes, rank_bytes=traits.multicast_rank_bytes,
        ranks=sum(where(ranks >= FEWEST_RANKS, ranks, 0) for ranks in near),
    )  # fmt: skip


def _summing(setup: Setup) -> list[Span]:
    """Groups that sum up: tensor parallel ones, and those of gradients, which context parallel ranks share."""
    layout = setup.layout
    return [span_of(layout, "tp"), Span("dp", layout.dp * layout.cp, layout.tp, world=layout.gpus)]


def _sending(setup: Setup) -> list[Span]:
    """Groups whose ranks send to each other."""
    layout = setup.layout
    stages = Span("pp", layout.pp, layout.gpus // layout.pp, world=layout.gpus)
    return [span_of(layout, "cp"), span_of(layout, "ep"), stages]


def _whole(setup: Setup) -> list[Span]:
    """The group of all ranks, and that in which the norm of gradients is summed up: all ranks where the optimizer is
    sharded, else those of one model (NVIDIA/Megatron-LM core/optimizer, get_grad_stats_parallel_group)."""
    layout = setup.layout
    if not setup.framework.overhead.whole_groups:
        return []
    norms = where(layout.zero >= 1, layout.gpus, layout.tp * layout.pp)
    return [Span("all", ranks, 1, world=layout.gpus) for ranks in (layout.gpus, norms)]


def _together(setup: Setup, span: Span) -> Number:
    """Ranks of a group on one domain, up to as many as were measured."""
    cluster = setup.cluster
    ranks = maximum(span.ranks, 1)
    return minimum(spread(ranks, span.stride, span.world, cluster.domain, cluster.gpus_per_node)[1], MOST_RANKS)
