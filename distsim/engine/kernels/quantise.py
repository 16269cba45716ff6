"""Passes over memory that make operands of products in 8 bits or fewer: inputs, gradients of outputs, weights."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.layers.ledger import Operation
from distsim.layers.names import MLP_DOWN, MLP_UP, QKV

Sizes = tuple[Number, Number, Number]
"""Elements of a product's input, of its output and of its weights."""
BEHIND = {QKV: "norm", MLP_UP: "norm", MLP_DOWN: "activation"}
"""What writes the input of a product."""
AHEAD = {MLP_UP: "activation"}
"""What writes the gradient of a product's output."""
ADAPTED = {QKV: frozenset("qkv"), MLP_UP: frozenset("gu")}
"""Targets of adapters that read the same input in 16 bits (``Tuning.targets``)."""


def casts_weights(setup: Setup) -> Number:
    """1 where a product's module quantises its weights, 0 where they come in 8 bits from FSDP's ranks, if a job's casts
    are composed (others' state what arriving weights take)."""
    precision = setup.precision
    if not precision.cast_kernels or precision.gather_bytes >= precision.activation_bytes:
        return 1
    return where(setup.layout.zero >= 3, 0, 1)


def trained_casts(setup: Setup, operation: Operation, sizes: Sizes) -> tuple[Number, Number]:
    """Bytes moved forward and backward where the weights' gradient is computed too."""
    inputs, outputs, weights = sizes
    precision = setup.precision
    each, weight = precision.cast_bytes
    weight = weight * casts_weights(setup)
    spared = spared_bytes(setup, operation, sizes)
    forward = each * inputs - spared[0] + weight * weights
    backward = each * outputs - spared[1]
    if precision.cast_each:  # once more for the input gradient, and for the weight gradient, if that is narrow, too
        narrow = 0 if precision.wide_weight_gradient else 1
        backward = backward + weight * weights + narrow * each * (inputs + outputs)
        backward = backward + precision.turned_bytes * (weights + narrow * (inputs + outputs))
    return forward, backward + precision.rescale_bytes * (inputs + weights)


def makes_weight_gradient(setup: Setup, operation: Operation, narrow: bool) -> bool:
    """Whether backward computes the gradient of an operation's weights; some software computes frozen ones', too."""
    return operation.weight_gradient or (narrow and setup.precision.frozen_gradients)


def frozen_casts(setup: Setup, operation: Operation, sizes: Sizes) -> tuple[Number, Number]:
    """Bytes that casts move, forward and backward, of frozen weights: nothing is written twice for their gradient
    (Transformer Engine, pytorch/module/linear.py: columnwise only where backward needs the input). 8-bit weights that
    have no bf16 copy are transposed for each backward where tensor cores read them one way only: a cache would double
    them."""
    inputs, outputs, weights = sizes
    precision = setup.precision
    each, weight = precision.cast_bytes
    weight = weight * casts_weights(setup)
    if not precision.cast_each:
        each = each - precision.kept_input_bytes
    turned = 2 * precision.transpose_bytes * traits_of(setup.accelerator).transposes
    if precision.parameter_bytes >= precision.activation_bytes:
        turned = 0.0
    again, spared = weight + precision.turned_bytes, spared_bytes(setup, operation, sizes)
    backward = each * outputs - spared[1] + (again if precision.cast_each else turned) * weights
    return each * inputs - spared[0] + weight * weights, backward + precision.rescale_bytes * inputs


def spared_bytes(setup: Setup, operation: Operation, sizes: Sizes) -> tuple[Number, Number]:
    """Bytes that nobody writes and reads in 16 bits, forward and backward, where ``kernels.quantised_by`` names what
    writes a product's input or its output's gradient."""
    inputs, outputs, _ = sizes
    by, spared = setup.kernels.quantised_by, 2 * setup.precision.activation_bytes
    targets = setup.tuning.targets if setup.tuning is not None else frozenset()
    wide = bool(ADAPTED.get(operation.name, frozenset()) & targets)
    forward = spared * inputs * (BEHIND.get(operation.name) in by and not wide)
    return forward, spared * outputs * (AHEAD.get(operation.name) in by)
