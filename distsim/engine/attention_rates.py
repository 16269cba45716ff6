"""How fast the kernel of flash attention is that a framework runs on a chip, over one written for that chip."""

from __future__ import annotations

from distsim.engine.resolve import Setup
from distsim.formulas.compute import OLDER_ATTENTION, PORTABLE_ATTENTION

FLASH_BACKWARD_SHARE = 0.8
"""Rate of flash attention's backward over its forward's (Dao 2023, arXiv:2307.08691, figures 5 and 6)."""
NEWER = ("hopper", "blackwell")
"""Architectures whose tensor cores FlashAttention-2 was not written for."""


def attention_rates(setup: Setup) -> tuple[float, float]:
    """Shares of the best measured rate of products, forward and backward."""
    generation = setup.accelerator.architecture.split()[0]
    age = NEWER.index(generation) + 1 if generation in NEWER else 0
    share = OLDER_ATTENTION[setup.kernels.attention_kernel][age]
    portable = PORTABLE_ATTENTION if setup.kernels.sdpa and generation.startswith("cdna") else (1.0, 1.0)
    return share * portable[0], share * portable[1] * FLASH_BACKWARD_SHARE
