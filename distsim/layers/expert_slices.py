"""Experts whose matrices are slices of one tensor of all: what their gradients hold."""

from __future__ import annotations

from distsim.arrays import maximum
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.specs.precision import Precision


def slice_bytes_each(precision: Precision) -> float:
    """Bytes of an element of a slice's gradient: as wide as the weight where autocast casts it, else as its product."""
    return precision.parameter_bytes if precision.autocast else precision.activation_bytes


def summed_slices(ctx: Context, up: Operation, down: Operation) -> Operation:
    """The product of a loop's last expert, the first to run backward, with what is alive besides soon after it: the
    sums of both tensors' gradients, and a third, the latest slice's, which is added to one of them."""
    sizes = [one.parameters[0].elements if one.weight_gradient else 0 for one in (up, down)]
    sums = Tensor("mlp.experts.slices", sizes[0] + maximum(*sizes), slice_bytes_each(ctx.precision), "e h f")
    return down._replace(transient_backward=(*down.transient_backward, sums))
