"""GPT-OSS under Unsloth, whose attention is a kernel with sinks where transformers composes it."""

from __future__ import annotations

import distsim
from distsim import Job
from distsim.engine.jobs.resolve import resolve
from distsim.units import GIB

LONG = {"model": "gpt-oss-20b", "gpu": "h100-sxm", "gpus": 1, "lora_rank": 16, "quantize": "nf4"}


def test_scores_of_gpt_oss_are_not_in_memory() -> None:
    """Unsloth's own figures have 16,384 tokens and more on 80 GB (its blog on long contexts of gpt-oss, recalled)."""
    own, composed = (distsim.memory(Job(**LONG, seq=16_384, framework=name)) for name in ("unsloth", "huggingface"))
    assert own.fits and own.peak < 20 * GIB and not composed.fits
    assert resolve(Job(**LONG, framework="unsloth")).kernels.gate_tensors == 4  # the rest of the family stays


def test_eager_attention_may_still_be_asked_for() -> None:
    """UNSLOTH_ENABLE_FLEX_ATTENTION=0 leaves it to transformers."""
    assert not distsim.memory(Job(**LONG, seq=16_384, framework="unsloth", attention="eager")).fits
