"""Recordings of PyTorch on fake tensors: their names for recipes, and what they do not show, which kernels make."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.figures import Figures
from distsim.engine.footprint.moments import moments_of
from distsim.engine.footprint.saved import Saved, saved_of
from distsim.engine.footprint.stage_step import StageStep
from distsim.engine.footprint.states import States, states
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage, build_stages
from distsim.layers.ledger import Operation

PRECISION = {
    "bf16": "pure-bf16",
    "fp32_amp": "amp-bf16",
    "fp32": "fp32",
    "bf16_master": "bf16",
    "bf16_master_maingrad": "bf16-fp32-grads",
}
"""The recipe of each ``dtype_scheme``."""


def figured(setup: Setup) -> tuple[Saved, States, float]:
    """What a job's first stage keeps for backward, its states, and its highest moment in bytes."""
    stage = build_stages(setup)[0]
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    return saved, held, max(float(moment.total) for moment in moments_of(setup, stage, held, saved))


def added_apart(setup: Setup, stage: Stage, held: States, saved: Saved) -> dict[str, float]:
    """What moments hold more where tensors are fake: gradients of one matrix are added out of place, while autograd
    adds to the first in place where nothing else holds it, but not to subclasses of tensors (torch 2.13
    autograd/input_buffer.cpp, accumulate)."""
    step, two = StageStep(setup, stage, held, saved), bool(setup.model.encoder_layers)
    table, cast = float(step.tied_gradient()), setup.precision.autocast
    return {
        "decoder's embedding backward": table * cast,
        "embedding backward": table * (cast or two) + float(step.second_lookup()),
    }


def recorded_peak(setup: Setup, stage: Stage, held: States, saved: Saved) -> float:
    """The highest moment as fake tensors have it."""
    more = added_apart(setup, stage, held, saved)
    return max(float(one.total) + more.get(one.name, 0) for one in moments_of(setup, stage, held, saved))


def recorded_stage(setup: Setup) -> Stage:
    """A job's first stage without the product that a softmax's backward makes on a GPU (tests/test_plain_kernels.py):
    a third tensor as large as the scores."""
    stage = build_stages(setup)[0]
    if setup.kernels.softmax_kernel != "steps":
        return stage
    layers = [
        (block._replace(operations=tuple(_recorded(one) for one in block.operations)), count)
        for block, count in stage.layers
    ]
    return replace(stage, layers=tuple(layers))


def _recorded(operation: Operation) -> Operation:
    """A row as fake tensors have it, for which no kernel runs."""
    if operation.name != "attention.softmax":
        return operation
    scores, gradient, product, *rest = operation.transient_backward
    assert scores == gradient == product
    return operation._replace(transient_backward=(scores, gradient, *rest))
