"""How much of a phase's exchanges its computation can hide, before the step's own timeline says it exactly."""

from __future__ import annotations

from distsim.arrays import Number, maximum
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.traffic import exposed_exchange_seconds

LEAST_SECONDS = 1e-12
"""Keeps the share of nothing from dividing by zero."""


def compute_seconds(setup: Setup, stage: Stage, phase: str) -> Number:
    """The least time of a phase's matrix products and attention over one step: at the chip's peak rate. What follows
    the optimizer hides beside the first micro-batch's forward of the next step."""
    field = "flops_backward" if phase == "backward" else "flops_forward"
    times = 1 if phase == "step" else setup.layout.micro_batches
    flops = sum(getattr(operation, field) * count for operation, count in stage.operations())
    peak = getattr(setup.accelerator.peak, setup.precision.math) or setup.accelerator.peak.fp32
    return flops * times / peak if peak else 0.0


def hidden_fraction(setup: Setup, stage: Stage, phase: str, seconds: Number) -> Number:
    """The share (0 to 1) of ``seconds`` of exchanges that a phase's computation can hide."""
    left = exposed_exchange_seconds(seconds, compute_seconds(setup, stage, phase))
    return 1 - left / maximum(seconds, LEAST_SECONDS)
