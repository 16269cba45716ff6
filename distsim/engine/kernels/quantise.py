"""Passes over memory that make operands of products in 8 bits or fewer: inputs, gradients of outputs, weights."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup

Sizes = tuple[Number, Number, Number]
"""Elements of a product's input, of its output and of its weights."""


def trained_casts(setup: Setup, sizes: Sizes) -> tuple[Number, Number]:
    """Bytes moved forward and backward where the weights' gradient is computed too."""
    inputs, outputs, weights = sizes
    precision = setup.precision
    each, weight = precision.cast_bytes
    again = 1 if precision.cast_each else 0
    forward = each * inputs + weight * weights
    backward = each * outputs * (1 + again) + forward * again
    return forward, backward + precision.rescale_bytes * (inputs + weights)


def frozen_casts(setup: Setup, sizes: Sizes) -> tuple[Number, Number]:
    """Bytes that casts move, forward and backward, of frozen weights: nothing is written twice for their gradient
    (Transformer Engine, pytorch/module/linear.py: columnwise only where backward needs the input). 8-bit weights that
    have no bf16 copy are transposed for each backward where tensor cores read them one way only: a cache would double
    them."""
    inputs, outputs, weights = sizes
    precision = setup.precision
    each, weight = precision.cast_bytes
    if not precision.cast_each:
        each = each - precision.kept_input_bytes
    turned = 2 * precision.transpose_bytes * traits_of(setup.accelerator).transposes
    if precision.parameter_bytes >= precision.activation_bytes:
        turned = 0.0
    backward = each * outputs + (weight if precision.cast_each else turned) * weights
    return each * inputs + weight * weights, backward + precision.rescale_bytes * inputs
