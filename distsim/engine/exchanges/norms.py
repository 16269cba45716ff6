"""The norm of the gradient over all ranks, before the optimizer's step."""

from __future__ import annotations

from distsim.arrays import where
from distsim.engine.exchanges.flows import Flow, Span, dtype_name
from distsim.engine.exchanges.pipeline import stages_span
from distsim.engine.footprint.states import sharding_group
from distsim.engine.footprint.stored import trained_units
from distsim.engine.jobs.exchange import Exchange
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.units import FP32_BYTES


def norm_flows(setup: Setup, exchange: Exchange, stage: Stage) -> list[Flow]:
    """One sum over all ranks; or the norm of every parameter over its shards and over tensor parallel ranks, and what
    they come to over stages (torch's clip_grad_norm_ on DTensors, torchtitan's distributed/utils.py)."""
    if not exchange.clip:
        return []
    layout = setup.layout
    shared = where(layout.zero >= 1, sharding_group(layout, "dense"), 1)
    if not setup.framework.traffic.norm_per_parameter:
        span = Span("dp", shared * layout.tp * layout.pp, 1, world=layout.gpus)
        return [Flow("gradient norm", "all_reduce", span, "fp32", "step", 1, FP32_BYTES)]
    each = setup.precision.gradient_bytes
    tensors = sum(unit.count * len(unit.tensors) for unit in trained_units(stage))
    spans = (
        (Span("dp", shared, layout.tp, world=layout.gpus), tensors),
        (Span("tp", layout.tp, 1, world=layout.gpus), tensors),
        (stages_span(layout), 1),
    )
    name = dtype_name(each, setup.precision)
    return [Flow("gradient norm", "all_reduce", span, name, "step", 1, numbers * each) for span, numbers in spans]
