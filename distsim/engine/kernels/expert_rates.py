"""How fast the kernel is that multiplies a framework's experts, over libraries' on the same chip."""

from __future__ import annotations

from distsim.arrays import Number
from distsim.engine.jobs.resolve import Setup

TORCH_GROUPED = {"blackwell": (0.77, 0.77, 0.77)}
"""Rate of torch's own grouped product (torch._grouped_mm) in 16 bits over that of libraries' grouped products, forward,
of input and of weight gradients: on a B200 forward and backward together reach 750 to 850 TFLOP/s (0.47 of the best
measured product, where libraries in whole steps reach 0.61; pytorch/ao prototype/moe_training/README.md, torch 2.10),
in a step of GPT-OSS 120B on GB300 36% of the datasheet's rate (LambdaLabsML/torchtitan gb300/RESULTS_1K.md, torch
2.14). CUTLASS kernels of one shape of tile; on Hopper they are no slower (pytorch/ao pull request 2490: 524 TFLOP/s on
an H100 at 512 tokens an expert)."""
TORCH_GROUPED_NARROW = {"blackwell": (1.0, 1.0, 0.76)}
"""The same of torch's scaled grouped products in MXFP8: 2,094, 2,094 and 1,596 TFLOP/s on a B200 (the same README,
kernels by pass)."""
TRITON_GROUPED = {"blackwell": (1.5, 0.0375)}
"""Time of a grouped product written in Triton (Pallas: haliax's ragged_dot) over a library's: at once, and for each
expert of a rank. On a B200 it reaches 397, 584, 736 and 859 TFLOP/s with 64, 32, 16 and 8 experts of 32,768 tokens
each, where QuACK's CUTLASS kernels reach 1,470 to 1,560 (marin-community/marin .agents/logbooks/7012-b200-moe-mfu.md,
B200MFU-017). Nobody measured it on other architectures."""
AS_LIBRARIES = (1.0, 1.0, 1.0)
"""Rates of the three products of kernels that are as fast as a library's, over its."""


def expert_rates(setup: Setup, *, narrow: bool) -> tuple[Number, Number, Number]:
    """Shares of the rate of experts' products: forward, of input gradients and of weight gradients."""
    kernel, generation = setup.kernels.expert_kernel, setup.accelerator.generation
    if kernel == "triton" and generation in TRITON_GROUPED and setup.model.experts is not None:
        once, each = TRITON_GROUPED[generation]
        share = 1 / (once + each * setup.model.experts.count / setup.layout.ep)
        return share, share, share
    if kernel != "torch":
        return AS_LIBRARIES
    known = TORCH_GROUPED_NARROW if narrow else TORCH_GROUPED
    return known.get(generation, AS_LIBRARIES)
