"""8-bit products in plain torch are Transformer Engine's, whose layers stand in the place of torch's."""

from __future__ import annotations

from typing import Any

import pytest

from distsim import catalog, step
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.specs.job import Job

LLAMA: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h200-sxm", "gpus": 8, "framework": "fsdp", "seq": 4096,
                         "global_batch": 256, "dropout": False}  # fmt: skip


@pytest.mark.parametrize("name", ["fsdp", "torch-ddp"])
def test_fused_layers_come_with_8_bits(name: str) -> None:
    wide = resolve(Job(model="gpt2-xl", gpu="h100-sxm", framework=name, precision="amp-bf16")).kernels
    narrow = resolve(Job(model="gpt2-xl", gpu="h100-sxm", framework=name, precision="fsdp-fp8")).kernels
    assert (wide.modules, narrow.modules) == ("own", "transformer-engine")
    assert (narrow.norm, narrow.activation, narrow.rope, narrow.loss) == ("fused", "fused", "fused", wide.loss)


def test_large_micro_batches_gain_and_small_ones_wait_for_the_host() -> None:
    """ROCm/TransformerEngine issue 79: 2.77 and 7.52 s for one and four sequences in each of eight micro-steps."""
    one = step(**{**LLAMA, "global_batch": 64}, micro_batch=1, precision="fsdp-fp8").seconds
    four = step(**LLAMA, micro_batch=4, precision="fsdp-fp8").seconds
    assert (one, four) == (pytest.approx(2.77, rel=0.1), pytest.approx(7.52, rel=0.1))
    tiny = {**LLAMA, "seq": 128, "global_batch": 8, "gpus": 1, "model": "gpt2-xl", "framework": "torch-ddp"}
    assert step(**tiny, precision="fsdp-fp8").seconds > 1.5 * step(**tiny, precision="amp-bf16").seconds


def test_a_years_older_attention_is_not_transformer_engines() -> None:
    row = {"id": "x", "year": "2024", "model": "llama-3-8b", "gpu": "h200-sxm", "n_gpus": "8", "zero_stage": "3",
           "framework": "fsdp", "seq_len": "4096", "micro_batch": "4", "grad_accum": "8",
           "recompute": "none"}  # fmt: skip
    found = {name: setup_of(Run({**row, "precision": name}, 1)) for name in ("bf16", "fp8")}
    assert (found["bf16"].kernels.attention_kernel, found["fp8"].kernels.attention_kernel) == ("flash-2", "own")
    assert found["fp8"].precision.name == catalog.load("precisions", "fsdp-fp8").name
