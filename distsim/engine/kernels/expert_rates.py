"""How fast the kernel is that multiplies a framework's experts, over libraries' on the same chip."""

from __future__ import annotations

from distsim.architectures import traits_of
from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup

AS_LIBRARIES = (1.0, 1.0, 1.0)
"""Rates of the three products of kernels that are as fast as a library's, over its."""


def expert_rates(setup: Setup, *, narrow: bool) -> tuple[Number, Number, Number]:
    """Shares of the rate of experts' products: forward, of input gradients and of weight gradients."""
    kernel, known = setup.kernels.expert_kernel, traits_of(setup.accelerator).grouped
    if known is None:
        return AS_LIBRARIES
    if kernel == "triton" and setup.model.experts is not None:
        share = 1 / (known.triton_once + known.triton_each * setup.model.experts.count / setup.layout.ep)
        return share, share, share
    if kernel != "torch":
        return AS_LIBRARIES
    return known.torch_narrow if narrow else known.torch
