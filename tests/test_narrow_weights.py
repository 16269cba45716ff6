"""What a recipe of 8 bits holds in them, and what not."""

from __future__ import annotations

import pytest

import distsim


@pytest.mark.parametrize(
    ("precision", "gpu", "size"),
    [
        ("fp8-parameters", "b200-sxm", 6_979_321_856 + 2 * (2 * 525_336_576 + 266_240)),
        ("fp8", "h100-sxm", 2 * 8_030_261_248 + 2 * 6_979_321_856),
        ("bf16", "h100-sxm", 2 * 8_030_261_248),
    ],
)
def test_embedding_and_output_layer_stay_in_16_bits(precision: str, gpu: str, size: int) -> None:
    """Llama 3 8B: 6.98 billion weights of Transformer Engine's modules, two tables of 525 million, 65 norms."""
    report = distsim.memory("llama-3-8b", gpus=1, gpu=gpu, precision=precision, framework="megatron-core", seq=512)
    assert report.stages[0].states.parameters == pytest.approx(size, rel=1e-9)
