"""What NCCL holds for the process groups of a rank, outside of torch's allocator."""

from __future__ import annotations

from typing import NamedTuple

from distsim.architectures import traits_of
from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.figures import Figures
from distsim.engine.jobs.resolve import Setup
from distsim.engine.networks.spread import spread
from distsim.formulas.buffers import communicator_bytes, multicast_bytes

SWITCHED = "nvswitch"
"""The fabric on which all GPUs of a domain reach each other at once, and which reduces from Hopper on."""
MOST_RANKS = 8
"""NCCL's heads on a domain (nHeads 8 in its log; ``nvls.heads`` of the links' tables, which memory does not load):
groups of more ranks are taken to hold as much."""
FEWEST_RANKS = 3
"""Pairs leave nothing to the switch (vllm-project/vllm issue 9699: buffers from three GPUs on)."""


class Ranks(NamedTuple):
    """A group: how many ranks, and how far apart they are numbered (tensor parallel ones first, then context, data and
    pipeline parallel ones)."""

    count: Number
    stride: Number


def communicator_buffers(setup: Setup, figures: Figures) -> Number:
    """Buffers of each group of several ranks, and of those that the switch between GPUs makes sums for."""
    overhead, traits = setup.framework.overhead, traits_of(setup.accelerator)
    sums, sends, whole = _summing(setup), _sending(setup), _whole(setup)
    source = setup.framework.source_of("overhead.communicator_bytes") or "preset"
    total = figures.use(
        "communicators", communicator_bytes, source, bytes_per_group=overhead.communicator_bytes,
        groups=sum(where(group.count > 1, 1, 0) for group in (*sums, *sends, *whole)),
    )  # fmt: skip
    if setup.cluster.fabric.kind != SWITCHED or not overhead.multicast or not traits.multicast_rank_bytes:
        return total
    near = (_together(setup, group) for group in (*sums, *whole[:1]))
    return total + figures.use(
        "communicators' buffers for the switch", multicast_bytes, rank_bytes=traits.multicast_rank_bytes,
        ranks=sum(where(ranks >= FEWEST_RANKS, ranks, 0) for ranks in near),
    )  # fmt: skip


def _summing(setup: Setup) -> list[Ranks]:
    """Groups that sum up: tensor parallel ones, and those of gradients, which context parallel ranks share."""
    layout = setup.layout
    return [Ranks(layout.tp, 1), Ranks(layout.dp * layout.cp, layout.tp)]


def _sending(setup: Setup) -> list[Ranks]:
    """Groups whose ranks send to each other."""
    layout = setup.layout
    return [Ranks(layout.cp, layout.tp), Ranks(layout.ep, layout.etp), Ranks(layout.pp, layout.gpus // layout.pp)]


def _whole(setup: Setup) -> list[Ranks]:
    """The group of all ranks, and that in which the norm of gradients is summed up: all ranks where the optimizer is
    sharded, else those of one model (NVIDIA/Megatron-LM core/optimizer, get_grad_stats_parallel_group)."""
    layout = setup.layout
    if not setup.framework.overhead.whole_groups:
        return []
    return [Ranks(layout.gpus, 1), Ranks(where(layout.zero >= 1, layout.gpus, layout.tp * layout.pp), 1)]


def _together(setup: Setup, group: Ranks) -> Number:
    """Ranks of a group on one domain, up to as many as were measured."""
    cluster, count = setup.cluster, maximum(group.count, 1)
    near = spread(count, group.stride, setup.layout.gpus, cluster.domain, cluster.gpus_per_node)[1]
    return minimum(near, MOST_RANKS)
