"""How fast the kernel of flash attention is that a framework runs on a chip, over one written for that chip."""

from __future__ import annotations

from distsim.engine.resolve import Setup
from distsim.formulas.compute import OLDER_ATTENTION, PORTABLE_ATTENTION
from distsim.specs.accelerator import Accelerator

FLASH_BACKWARD_SHARE = 0.8
"""Rate of flash attention's backward over its forward's (Dao 2023, arXiv:2307.08691, figures 5 and 6)."""
HOPPER_BACKWARD_SHARE = 0.87
"""The same of kernels written for Hopper: about 560 TFLOP/s of 650 at 16,384 tokens and heads 128 wide (Shah et al.
2024, arXiv:2407.08608, figures 5 and 6; recalled)."""
NEWER = ("hopper", "blackwell")
"""Architectures whose tensor cores FlashAttention-2 was not written for."""
AMPERE_UNIT_RATE = 312e12 / 108
"""FLOP/s of one unit of an A100 (presets/gpus/a100-sxm4-80gb.toml), which older kernels fill: so do they those of newer
chips whose units multiply no faster, such as H20's."""


def attention_rates(setup: Setup) -> tuple[float, float]:
    """Shares of the best measured rate of products, forward and backward."""
    generation = setup.accelerator.architecture.split()[0]
    age = NEWER.index(generation) + 1 if generation in NEWER and not _slow_units(setup.accelerator) else 0
    kernel = setup.kernels.attention_kernel
    share = OLDER_ATTENTION[kernel][age]
    own = kernel == "own" and age and generation == "hopper"
    backward = HOPPER_BACKWARD_SHARE if own else FLASH_BACKWARD_SHARE
    portable = PORTABLE_ATTENTION if setup.kernels.sdpa and generation.startswith("cdna") else (1.0, 1.0)
    return share * portable[0], share * portable[1] * backward


def _slow_units(chip: Accelerator) -> bool:
    """Whether each unit multiplies no faster than those that older kernels were written for."""
    return bool(chip.chip.units and chip.peak.bf16 and chip.peak.bf16 / chip.chip.units <= AMPERE_UNIT_RATE)
