"""What JAX keeps of layers that a loop stacks, as ``benchmarks/jax/record.py`` recorded it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distsim import Job
from distsim.engine.footprint.saved import layer_saved_bytes
from distsim.engine.footprint.stage_step import kept_casts
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.specs.model import Model

ORACLE = json.loads((Path(__file__).parent / "oracles" / "jax_saved.json").read_text())
WIDTHS = {"float32": 4, "bfloat16": 2, "bool": 1}
BIASED = {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}


def job_of(case: dict[str, Any], **options: Any) -> Job:
    """A recorded case as a job on one chip."""
    llama, remat = case["family"] == "llama", case["remat"]
    heads = case["heads"]
    model = Model(
        name="recorded", family="recorded", layers=case["layers"], hidden=case["hidden"], heads=heads,
        kv_heads=case["kv_heads"], head_dim=case["hidden"] // heads, ffn=case["ffn"], vocab=case["vocab"],
        context=case["seq"], gated=llama, activation="silu" if llama else "gelu", norm="rmsnorm" if llama else
        "layernorm", positions="rotary" if llama else "none", tied_embeddings=False, **({} if llama else BIASED),
    )  # fmt: skip
    return Job(
        model=model, gpu="tpu-v6e", gpus=1, seq=case["seq"], micro_batch=case["batch"], framework="maxtext",
        global_batch=case["batch"] * case["accumulate"], recompute=remat if remat in ("none", "full") else "selective",
        attention="eager" if case["attention"] == "composed" else "flash", **options,
    )  # fmt: skip


def setup_for(case: dict[str, Any]) -> Setup:
    """The same under the policy of the case."""
    setup = resolve(job_of(case))
    remat = setup.framework.remat.get(case["remat"].replace("dots_saveable", "minimal"))
    return setup if remat is None else replace(setup, kernels=setup.kernels.model_copy(update={"kept": remat.keeps}))


@pytest.mark.parametrize("recorded", ORACLE["saved"], ids=[one["case"]["name"] for one in ORACLE["saved"]])
def test_what_a_scanned_layer_stacks(recorded: dict[str, Any]) -> None:
    case = recorded["case"]
    setup = setup_for(case)
    block = build_stages(setup)[0].layers[0][0]
    full = int(case["remat"] == "full")
    found = layer_saved_bytes(setup, block, full) + (0 if full else kept_casts(setup, block))
    stacked = sum(count * math.prod(shape) * WIDTHS[kind] for count, shape, kind in recorded["stacked"])
    composed = case["attention"] == "composed"  # of grouped heads the ledger has copies
    assert found == pytest.approx(stacked, rel=0.02 if composed else 2e-4)
