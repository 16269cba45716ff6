"""How fast the kernel of flash attention is that a framework runs on a chip, over one written for that chip."""

from __future__ import annotations

import math
from typing import NamedTuple

from distsim.architectures import traits_of
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.attention import waiting_share
from distsim.formulas.compute import (
    BACKWARD_PRODUCTS,
    FULL_WIDTH,
    OLDER_ATTENTION,
    USUAL_EXPONENTIALS,
)

FLASH_BACKWARD_SHARE = 0.8
"""Rate of flash attention's backward over its forward's (Dao 2023, arXiv:2307.08691, figures 5 and 6)."""
FP32_PRODUCTS = 3
"""Products on TF32 units that stand for one in fp32 in torch's memory-efficient kernel, the only one that takes fp32,
from Ampere on (OpMultiplyAddFastF32 in its gemm_kernel_utils.h; NVIDIA CUTLASS, example 27), whether or not a program
allows TF32. Its instructions are A100's and its softmax is little beside them: FlashAttention-2's shares are taken."""
HELD_UP = ("flash-1", "triton")
"""Kernels whose products wait for softmax and for what they read."""
NARROW_ATTENTION = {
    ("fp8", 16): ((1.29, 1.06), (1.50, 1.62)), ("fp8", 32): ((1.52, 1.18), (1.73, 1.76)),
    ("mxfp8", 16): ((1.20, 0.94), (1.38, 1.27)), ("mxfp8", 32): ((1.36, 0.95), (1.57, 1.36)),
}  # fmt: skip
"""Rate of attention in 8 bits over that in 16 on Blackwell, by the exponentials of a unit (Blackwell Ultra's 32):
forward and backward of heads up to 128 wide, and of latent attention's 192 and 128. Means of 4,096 and 8,192 tokens,
causal, on GB200 and GB300 (NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/results, llama3.1 and dsv3 of April
2026: data_type bfloat16, fp8 and mxfp8)."""
NARROW_FROM = 2
"""The age of those chips (``attention_age``)."""
MASKED_SHARES = (0.52, 0.54)
"""Rate of cuDNN's attention beside a dense mask, forward and backward, over that without any mask, all keys counted:
4,096 tokens and heads 128 wide on an H100, 349 of 671 TFLOP/s and 300 of 556 (torch 2.11, cuDNN 9;
tests/oracles/gpu_kernels.csv); torch's memory-efficient kernel there 130 and 124. Taken for Blackwell, too."""
NARROW_CASTS = {"fp8": 5.0, "mxfp8": 4.1}
"""Bytes that are moved to quantise an element of queries, keys and values, and of the output's gradient, which such
kernels read: 2 read for the largest value of a tensor, 2 read and 1 written; blocks need no first pass, but rows and
columns of 33/32 bytes (NVIDIA/TransformerEngine, Float8CurrentScaling and MXFP8BlockScaling; the output stays in 16
bits, NVTE_DPA_FP8CS_O_in_F16=1 in mlcommons/training_results_v5.1 NVIDIA config_common_fp8attn.sh)."""


def attention_rates(setup: Setup, per_clock: float | None) -> tuple[float, float]:
    """Shares of the best measured rate of products, forward and backward; ``per_clock`` are a unit's FLOP of products a
    clock, where these are known."""
    return _rates_of(setup, setup.kernels.attention_kernel, per_clock)


def portable_rates(setup: Setup, per_clock: float | None) -> tuple[float, float]:
    """The same of the kernel that torch takes where the chip's own does not take the heads."""
    kernel = setup.kernels.attention_kernel
    return _rates_of(setup, "flash-2" if kernel in ("own", "sdpa") else kernel, per_clock)


def own_width(setup: Setup) -> float:
    """The widest heads of the kernel written for the chip, where torch chooses it; others choose by themselves."""
    chosen = setup.kernels.sdpa or setup.framework.family == "torch"
    return traits_of(setup.accelerator).torch_own_width if chosen else math.inf


def _rates_of(setup: Setup, kernel: str, per_clock: float | None) -> tuple[float, float]:
    traits = traits_of(setup.accelerator)
    share = _share_of(setup, kernel, per_clock)
    backward = (traits.own_backward_share if kernel == "own" else None) or FLASH_BACKWARD_SHARE
    torchs = setup.kernels.sdpa or kernel == "flex"  # both compiled by Triton there
    portable = (traits.torch_attention_forward, traits.torch_attention_backward) if torchs else (1.0, 1.0)
    twice = BACKWARD_PRODUCTS / (backward_products(setup) or BACKWARD_PRODUCTS)
    return share * portable[0], share * portable[1] * backward * twice


def backward_products(setup: Setup) -> int | None:
    """Products of the backward pass, where the run or the chip's usual kernel has another number than others."""
    return setup.kernels.attention_products or setup.accelerator.chip.attention_products


def fp32_rates(setup: Setup, rate: float, tf32: float) -> tuple[float, float]:
    """Forward's and backward's rates of fp32 attention, as shares of ``rate`` (what products of the recipe reach), on
    NVIDIA's chips with TF32 units, whose best products reach ``tf32``."""
    share = OLDER_ATTENTION["flash-2"][_age(setup)] * tf32 / FP32_PRODUCTS / rate
    return share, share * FLASH_BACKWARD_SHARE


def efficient_rates(setup: Setup, per_clock: float | None) -> tuple[float, float]:
    """Forward's and backward's rates of torch's memory-efficient kernel: those of the first FlashAttention, which is of
    its age and as fast."""
    share = _share_of(setup, "flash-1", per_clock)
    return share, share * FLASH_BACKWARD_SHARE


def masked_rates(setup: Setup, per_clock: float | None) -> tuple[float, float]:
    """Forward's and backward's rates beside a dense mask: where torch takes cuDNN, it does so with a mask, too."""
    if setup.kernels.attention_kernel != "own" or not _age(setup):
        return efficient_rates(setup, per_clock)
    forward, backward = attention_rates(setup, per_clock)
    return forward * MASKED_SHARES[0], backward * MASKED_SHARES[1]


def _share_of(setup: Setup, kernel: str, per_clock: float | None) -> float:
    """Rate of a kernel over one written for the chip. Graphics cards multiply less a clock than an A100, and wait as
    long for the rest; newer chips have shares of their own, and whether Volta's and Turing's kernels wait as long
    nobody measured."""
    traits = traits_of(setup.accelerator)
    share = OLDER_ATTENTION[kernel][traits.attention_age]
    if kernel not in HELD_UP or traits.attention_age or traits.flash_attention != "all":
        return share
    if not traits.older_per_clock or not per_clock:
        return share
    return float(waiting_share(share, traits.older_per_clock, per_clock))


def _age(setup: Setup) -> int:
    """How many architectures the chip is newer than those that FlashAttention-2 was written for."""
    return traits_of(setup.accelerator).attention_age


class NarrowAttention(NamedTuple):
    """Attention in 8 bits, over a kernel in 16."""

    rates: tuple[tuple[float, float], tuple[float, float]]
    """Forward and backward, of heads of full width and of wider ones."""
    cast_bytes: float
    """Moved for each element that is quantised."""

    def of(self, width: int) -> tuple[float, float]:
        """Forward and backward for heads so wide."""
        return self.rates[width > FULL_WIDTH]


def narrow_attention(setup: Setup) -> NarrowAttention | None:
    """How attention in 8 bits differs where it has that and somebody measured it; None where it runs in 16."""
    kind, chip = setup.kernels.attention_format, setup.accelerator
    rates = NARROW_ATTENTION.get((kind, chip.chip.exponentials or USUAL_EXPONENTIALS))
    return NarrowAttention(rates, NARROW_CASTS[kind]) if rates and _age(setup) == NARROW_FROM else None
