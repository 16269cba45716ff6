"""How fast the kernel of flash attention is that a framework runs on a chip, over one written for that chip."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.formulas.compute import BACKWARD_PRODUCTS, OLDER_ATTENTION, PORTABLE_ATTENTION

FLASH_BACKWARD_SHARE = 0.8
"""Rate of flash attention's backward over its forward's (Dao 2023, arXiv:2307.08691, figures 5 and 6)."""
HOPPER_BACKWARD_SHARE = 0.87
"""The same of kernels written for Hopper: about 560 TFLOP/s of 650 at 16,384 tokens and heads 128 wide (Shah et al.
2024, arXiv:2407.08608, figures 5 and 6; recalled)."""
FP32_PRODUCTS = 3
"""Products on TF32 units that stand for one in fp32 in torch's memory-efficient kernel, the only one that takes fp32,
from Ampere on (OpMultiplyAddFastF32 in its gemm_kernel_utils.h; NVIDIA CUTLASS, example 27), whether or not a program
allows TF32. Its instructions are A100's and its softmax is little beside them: FlashAttention-2's shares are taken."""
NEWER = ("hopper", "blackwell")
"""Architectures whose tensor cores FlashAttention-2 was not written for."""


def attention_rates(setup: Setup) -> tuple[float, float]:
    """Shares of the best measured rate of products, forward and backward."""
    generation, age = setup.accelerator.generation, _age(setup)
    kernel = setup.kernels.attention_kernel
    share = OLDER_ATTENTION[kernel][age]
    backward = HOPPER_BACKWARD_SHARE if kernel == "own" and generation == "hopper" else FLASH_BACKWARD_SHARE
    portable = PORTABLE_ATTENTION if setup.kernels.sdpa and generation.startswith("cdna") else (1.0, 1.0)
    twice = BACKWARD_PRODUCTS / (setup.accelerator.chip.attention_products or BACKWARD_PRODUCTS)
    return share * portable[0], share * portable[1] * backward * twice


def fp32_rates(setup: Setup, rate: float, tf32: float) -> tuple[float, float]:
    """The same of attention in fp32 on NVIDIA's chips that have TF32 units, whose best products reach ``tf32``, over
    ``rate``, what those of the recipe reach."""
    share = OLDER_ATTENTION["flash-2"][_age(setup)] * tf32 / FP32_PRODUCTS / rate
    return share, share * FLASH_BACKWARD_SHARE


def efficient_rates(setup: Setup) -> tuple[float, float]:
    """The same of torch's memory-efficient kernel, which is of FlashAttention's age and as fast."""
    share = OLDER_ATTENTION["flash-1"][_age(setup)]
    return share, share * FLASH_BACKWARD_SHARE


def _age(setup: Setup) -> int:
    """How many architectures the chip is newer than those that FlashAttention-2 was written for."""
    generation = setup.accelerator.generation
    return NEWER.index(generation) + 1 if generation in NEWER else 0
