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


def test_updated_weights_travel_as_they_are_held() -> None:
    """7 billion weights in 8 bits, two tables and 65 norms in 16, of which each rank sends 63 parts of 64."""
    job = {"gpu": "h100-sxm", "gpus": 64, "zero": 1, "seq": 8192, "framework": "megatron-core"}
    report = distsim.comm("llama-3-8b", precision="fp8-parameters", **job)
    sent = {"fp8": 0.0, "bf16": 0.0}
    for row in report.to_dict()["collectives"]:
        if row["purpose"] == "parameters":
            sent[row["dtype"]] += row["wire_bytes_per_rank"]
    assert sent["fp8"] == pytest.approx(6_979_321_856 * 63 / 64, rel=1e-3)
    assert sent["bf16"] == pytest.approx(2 * (2 * 525_336_576 + 266_240) * 63 / 64, rel=1e-3)
