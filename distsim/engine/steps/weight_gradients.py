"""Share of a backward pass that is weight gradients, which zero-bubble schedules move into their bubbles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from distsim.arrays import Number, maximum, minimum
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.engine.steps.stage_seconds import gpu_seconds, host_phases, phase_seconds, product_seconds
from distsim.formulas.step import LEAST_SECONDS

if TYPE_CHECKING:
    from distsim.engine.steps.compose import MicroBatch

HALF = 0.5
"""One of a product's two backward products gives the weight gradient."""


def share_of(setup: Setup, stages: Iterable[Stage]) -> float:
    """Share of weight gradients in the backward products of some stages: half, less where most weights are frozen."""
    if setup.tuning is None:
        return HALF
    weights, both = 0.0, 0.0
    for stage in stages:
        for operation, count in stage.operations():
            if operation.kind == "matmul":
                weights += _mean(operation.flops_forward * count * operation.weight_gradient)
                both += _mean(operation.flops_backward * count)
    return weights / both if both else HALF


def weight_seconds(
    stage: Mapping[str, Number], batch: MicroBatch, layout: Mapping[str, Number], timing: Mapping[str, Number],
    share: Number,
) -> Number:  # fmt: skip
    """Seconds of a micro-batch's weight gradients, which are a ``share`` of its backward's products; of a backward that
    waits for the host they are as large a part as of what the GPU computes, what is computed again apart."""
    computed = product_seconds(stage, "backward", timing) * share
    alone = gpu_seconds(stage, "backward", timing)
    paced = phase_seconds(alone, host_phases(stage, layout, timing)[1], layout)
    longer = minimum(batch.backward / maximum(batch.again[1], LEAST_SECONDS), paced / maximum(alone, LEAST_SECONDS))
    return computed * maximum(longer, 1.0)


def _mean(value: Number) -> float:
    """Over the layouts of a search, whose shares differ by little."""
    return float(value) if isinstance(value, (int, float)) else float(value.mean())


def whole_share(setup: Setup) -> float:
    """Share of weight gradients in backward over the whole model: half where everything trains."""
    return share_of(setup, [] if setup.tuning is None else build_stages(setup))
