"""What quantised weights and those beside them take on a GPU while a step runs."""

from typing import Any

import pytest

import distsim

GIVEN: dict[str, Any] = {"gpus": 1, "framework": "huggingface", "seq": 2048, "lora_rank": 16, "recompute": "full"}
HEADS = {"llama-3.1-8b": 128_256 * 4096, "qwen2.5-3b": 151_936 * 2048}
"""Elements of the output layer: its own matrix, and the embedding's."""


def _moments(**options: Any) -> dict[str, float]:
    found = distsim.memory(**{**GIVEN, **options}).stages[0].moments
    return {moment.name: float(moment.total) for moment in found}


@pytest.mark.parametrize("model", HEADS)
@pytest.mark.parametrize("loss", ["liger", None])
def test_a_frozen_fp32_head_is_cast_until_its_backward(model: str, loss: str | None) -> None:
    """peft makes it fp32 beside 4-bit weights; autocast's 16-bit copy lives through the loss, and no longer."""
    chosen: dict[str, Any] = {"gpus": 2, "zero": 1} | ({} if loss is None else {"loss": loss})
    packed = _moments(model=model, gpu="h100-sxm", quantize="nf4", **chosen)
    left = _moments(model=model, gpu="h100-sxm", quantize="gptq-int4", **chosen)  # GPTQ leaves it in 16 bits
    wider = packed["optimizer step"] - left["optimizer step"]
    for moment in ("loss", "loss backward"):
        assert packed[moment] - left[moment] - wider == pytest.approx(2 * HEADS[model], abs=1)
    assert packed["backward of the last layer"] - left["backward of the last layer"] == pytest.approx(wider, abs=1e5)


@pytest.mark.parametrize(("zero", "wider"), [(0, 2), (3, 0)])
def test_an_fp32_embedding_makes_the_stream_fp32_where_nothing_is_sharded(zero: int, wider: int) -> None:
    """PowerLM 3B on fms-acceleration's baseline-peft-bnb: 16.9 and 31.8 GiB of 4 and 8 sequences on one A100, where a
    stream of 16 bits has 14.3 and 26.2; 7.3 and 13.3 of 2 and 4 under FSDP."""
    job: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "zero": zero, "gpus": 8 if zero else 1}
    packed, left = (_moments(**job, quantize=quantize) for quantize in ("nf4", "gptq-int4"))
    kept = packed["backward of the last layer"] - left["backward of the last layer"]
    states = packed["optimizer step"] - left["optimizer step"]
    boundaries = 32 * 2048 * 4096 * wider
    assert kept - states == pytest.approx(boundaries, rel=0.01)


def test_what_is_gathered_narrow_is_not_cast_again() -> None:
    """ZeRO 3 gathers it in 16 bits, and fp32 products read it as it is."""
    for options in ({"gpus": 8, "zero": 3}, {"precision": "fp32"}, {"precision": "amp-bf16"}):
        found = _moments(model="llama-3.1-8b", gpu="h100-sxm", quantize="nf4", **options)
        plain = _moments(model="llama-3.1-8b", gpu="h100-sxm", quantize="gptq-int4", **options)
        wider = found["optimizer step"] - plain["optimizer step"]
        assert found["loss"] - plain["loss"] == pytest.approx(wider, rel=0.01, abs=1e6), options


@pytest.mark.parametrize("quantize", ["none", "nf4", "int8"])
def test_fsdp_holds_what_it_gathers(quantize: str) -> None:
    """Under ZeRO 2 all that one forward pass gathers stays: 4-bit weights in their own size."""
    job: dict[str, Any] = {
        **GIVEN, "model": "llama-3.1-70b", "gpu": "l40s", "gpus": 4, "framework": "fsdp", "zero": 2,
        "quantize": quantize,
    }  # fmt: skip
    kept = distsim.memory(**job).stages[0].categories["buffers"]
    sent = [one for one in distsim.comm(**job).collectives if one.purpose == "parameters" and one.phase == "forward"]
    assert kept == pytest.approx(sum(one.calls * one.bytes_per_call for one in sent), rel=1e-6)
