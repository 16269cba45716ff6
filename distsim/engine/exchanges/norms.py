"""The norm of the gradient over all ranks, before the optimizer's step."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.exchanges.flows import Flow, Span, dtype_name
from distsim.engine.exchanges.pipeline import stages_span
from distsim.engine.footprint.stored import trained_units
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.sharding import sharding_group
from distsim.engine.jobs.stages import Stage
from distsim.units import FP32_BYTES


class Part(NamedTuple):
    """A dimension of the ranks that hold different gradients."""

    group: str
    ranks: Number


def norm_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """One sum over the ranks that hold different gradients, and one of the experts' where other ranks do (Megatron-LM,
    core/optimizer/clip_grads.py and the groups that its optimizers are given); or the norm of every parameter over its
    shards and over tensor parallel ranks, and what they come to over stages (torch's clip_grad_norm_ on DTensors,
    torchtitan's distributed/utils.py)."""
    if not exchange.clip:
        return []
    layout, shards = setup.layout, _shards(setup, "dense", setup.layout.dp * setup.layout.cp)
    if not setup.framework.traffic.norm_per_parameter:
        dense = _sum(setup, Part("tp", layout.tp), shards)
        if setup.model.experts is None:
            return [dense]
        own = _shards(setup, "expert", layout.expert_data_parallel)
        experts = _sum(setup, Part("tp", layout.etp), Part("ep", layout.ep), own)
        same = experts.span.ranks == dense.span.ranks
        shared = same & ((layout.zero >= 1) | (layout.ep == 1))  # else there are two groups of as many ranks
        return [dense, experts._replace(calls=where(shared, 0, 1))]
    each = setup.precision.gradient_bytes
    tensors = sum(unit.count * len(unit.tensors) for unit in trained_units(stage))
    spans = (
        (Span("dp", shards.ranks, layout.tp, world=layout.gpus), tensors, (shards.group,)),
        (Span("tp", layout.tp, 1, world=layout.gpus), tensors, ()),
        (stages_span(layout), 1, ()),
    )
    name = dtype_name(each, setup.precision)
    return [
        Flow("gradient norm", "all_reduce", span, name, "step", 1, numbers * each, groups=groups)
        for span, numbers, groups in spans
    ]


def _shards(setup: Setup, kind: str, whole: Number) -> Part:
    """The ranks that hold different shards: all ``whole`` data parallel ones, or those of one ZeRO group."""
    apart = setup.framework.traffic.norm_of_shards
    ranks = where(setup.layout.zero >= 1, sharding_group(setup.layout, kind), 1) if apart else 1
    return Part("dp" if isinstance(same := ranks == whole, bool) and same else "zero", ranks)


def _sum(setup: Setup, *parts: Part) -> Flow:
    """One number summed over neighbouring ranks and their likes on all stages, as far apart as stages are."""
    layout, near = setup.layout, 1
    for part in parts:
        near = near * part.ranks
    apart = minimum(stages_span(layout).stride, setup.cluster.domain)  # no farther than the next node
    stride = where(layout.pp > 1, maximum(apart // near, 1), 1)
    span = Span("dp", near * layout.pp, stride, world=layout.gpus)
    named = [part.group for part in (*parts, Part("pp", layout.pp)) if isinstance(part.ranks, int) and part.ranks > 1]
    return Flow("gradient norm", "all_reduce", span, "fp32", "step", 1, FP32_BYTES, groups=tuple(named))
