"""Share of a backward pass that is weight gradients, which zero-bubble schedules move into their bubbles."""

from __future__ import annotations

from collections.abc import Iterable

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages

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


def _mean(value: Number) -> float:
    """Over the layouts of a search, whose shares differ by little."""
    return float(value) if isinstance(value, (int, float)) else float(value.mean())


def whole_share(setup: Setup) -> float:
    """Share of weight gradients in backward over the whole model: half where everything trains."""
    return share_of(setup, [] if setup.tuning is None else build_stages(setup))
