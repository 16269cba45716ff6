"""Parameters that come to a GPU unit by unit, from other ranks or from host memory."""

from typing import Any

import pytest

import distsim

LAYER = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)
"""Bytes of one layer of Llama 3's 8B in 16 bits; two are there at a time, beside embedding, last norm and head. Under
DeepSpeed a billion parameters are, and half a billion gradients in a bucket."""
ROOT = 2 * (2 * 128_256 * 4096 + 4096)
JOB: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpu": "rtx-4090", "zero": 3, "recompute": "full", "seq": 1024, "precision": "bf16",
}  # fmt: skip


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface", "fsdp"])
def test_a_gpu_alone_holds_the_units_that_it_fetches(framework: str) -> None:
    """ZeRO-Infinity on one GPU: what it computes with is there, as on any of eight."""
    job = {**JOB, "framework": framework, "offload": "optimizer,parameters"}
    alone, among = (distsim.memory(**job, gpus=gpus).stages[0].categories for gpus in (1, 8))
    assert alone["parameters"] == among["parameters"] == 0
    assert alone["buffers"] == pytest.approx(among["buffers"], rel=1e-9)
    whole = 2 * 10**9 + 2 * 500_000_000 if framework == "deepspeed" else 2 * LAYER + ROOT
    assert alone["buffers"] == pytest.approx(whole, rel=1e-6)


def test_nothing_is_fetched_where_it_lies() -> None:
    """Whole parameters on one GPU are no buffers; DeepSpeed's bucket of gradients is, as are two under ZeRO 2."""
    for framework, each in (("huggingface", 0), ("deepspeed", 2 * 500_000_000)):
        found = distsim.memory(**JOB, framework=framework, gpus=1).stages[0].categories
        assert found["buffers"] == each and found["parameters"] > 16e9
    plain = distsim.memory(**{**JOB, "zero": 1}, framework="deepspeed", gpus=1).stages[0].categories
    assert plain["buffers"] == 0


def test_offloading_on_one_gpu_is_not_said_to_save_nothing() -> None:
    for options, told in (({}, True), ({"offload": "activations"}, True), ({"offload": "optimizer,parameters"}, False)):
        notes = distsim.memory(**JOB, framework="deepspeed", gpus=1, **options).setup.notes
        assert any("saves nothing" in note for note in notes) == told, options
