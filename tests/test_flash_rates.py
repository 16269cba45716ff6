"""Flash attention's speed against published figures, before any fit."""

from __future__ import annotations

import pytest

from distsim.engine.chip import Chip
from distsim.engine.flash import flash_seconds
from distsim.engine.resolve import resolve
from distsim.engine.stages import build_stages
from distsim.specs.job import Job
from distsim.specs.timing import Timing

# Forward and backward together, causal, heads 128 wide, 16,384 tokens: FLOP/s with half of the score matrix counted.
# A100: FlashAttention-2 (Dao 2023, arXiv:2307.08691, figure 4); H100: FlashAttention-3 (Shah et al. 2024,
# arXiv:2407.08608, figures 5 and 6). Read off and recalled.
PUBLISHED = {("a100-sxm4-80gb", "own"): 189e12, ("h100-sxm", "own"): 520e12}


def rate(gpu: str, kernel: str, tokens: int, timing: Timing) -> float:
    """FLOP/s of both directions."""
    setup = resolve(Job(model="llama-7b", gpu=gpu, seq=tokens, micro_batch=max(1, 16384 // tokens)))
    kernels = setup.kernels.model_copy(update={"attention_kernel": kernel})
    object.__setattr__(setup, "kernels", kernels)
    layer = build_stages(setup)[0].layers[0][0]
    core = next(one for one in layer.operations if one.name == "attention.core")
    work = (core.flops_forward + core.flops_backward) / 2
    return float(work / (sum(flash_seconds(Chip(setup), core)) / timing.attention))


@pytest.mark.parametrize(("gpu", "kernel"), list(PUBLISHED))
def test_long_sequences_run_as_fast_as_published(gpu: str, kernel: str) -> None:
    assert rate(gpu, kernel, 16384, Timing()) == pytest.approx(PUBLISHED[gpu, kernel], rel=0.08)


def test_short_sequences_run_slower() -> None:
    """FlashAttention-2's figure 4: about 0.8 of the long rate at 2,048 tokens, 0.64 at 1,024."""
    rates = {tokens: rate("a100-sxm4-80gb", "own", tokens, Timing()) for tokens in (512, 1024, 2048, 16384)}
    assert rates[512] < rates[1024] < rates[2048] < rates[16384]
    assert rates[2048] / rates[16384] == pytest.approx(0.8, abs=0.08)
    assert rates[1024] / rates[16384] == pytest.approx(0.64, abs=0.1)
