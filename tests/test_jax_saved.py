"""What JAX keeps of layers that a loop stacks, as ``benchmarks/jax/record.py`` recorded it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distsim import Job, memory
from distsim.engine.evidence import replay
from distsim.engine.footprint.saved import layer_saved_bytes
from distsim.engine.footprint.stage_step import kept_casts, loop_casts
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run, read_runs
from distsim.specs.model import Model

ORACLE = json.loads((Path(__file__).parent / "oracles" / "jax_saved.json").read_text())
UNSEEN = Path(__file__).parent.parent / "presets" / "runs" / "unseen.csv"
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


@pytest.mark.parametrize(("place", "accumulate", "within"), [(0, 1, 0.003), (0, 2, 0.003), (1, 1, 0.3)])
def test_what_a_layer_adds_to_plans_of_xla(place: int, accumulate: int, within: float) -> None:
    """A v6e holds the loop's arrays, fp32 gradients and casts of weights made before the loop (and copies in other
    layouts under full recomputation, which are not counted); gradients of a micro-batch stand beside their sum."""
    recorded = ORACLE["plans"][place]
    case = {**recorded["case"], "accumulate": accumulate}
    peaks, gradients = [], []
    for plan in recorded["plans"]:
        stage = memory(job_of({**case, "layers": plan["layers"]})).to_dict()["stages"][0]
        parts = stage["categories"]
        peaks.append(stage["peak"] - parts["parameters"] - parts["optimizer"])
        gradients.append(parts["gradients"])
    few, many = (plan["temporary"] for plan in recorded["plans"])
    sums = (gradients[1] - gradients[0]) * (accumulate - 1)
    assert peaks[1] - peaks[0] - sums == pytest.approx(many - few, rel=within)


@pytest.fixture(scope="module")
def measured() -> dict[str, Run]:
    """Runs that nobody fitted, by id."""
    return {run.text("id") or "": run for run in read_runs(UNSEEN)}


@pytest.mark.parametrize("row", ["own-0073", "own-0076", "own-0077", "own-0078", "own-0079", "own-0080"])
def test_peaks_of_an_h100(row: str, measured: dict[str, Run]) -> None:
    """Stacked whole, under a policy or computed again; with gradients there before backward they were 5% higher."""
    assert abs(replay(measured[row], strange=True).memory_error or 1) < 0.02


@pytest.mark.parametrize(
    ("notes", "residuals"),
    [("no remat, unscanned", "fused"), ("layers unrolled: AdamW", "fused"), ("scan_layers=false", "fused"),
     ("scanned layers, remat none", "stacked"), ("", "stacked")],
)  # fmt: skip
def test_notes_tell_of_layers_without_a_loop(notes: str, residuals: str) -> None:
    cells = {"model": "llama-3.2-1b", "gpu": "tpu-v6e", "n_gpus": "1", "seq_len": "2048", "micro_batch": "1",
             "framework": "maxtext"}  # fmt: skip
    assert setup_of(Run({**cells, "notes": notes}, 1)).kernels.residuals == residuals


def test_casts_of_experts_are_of_the_shards_that_a_rank_holds() -> None:
    """Each of 32 ranks holds a 32nd of Mixtral 8x7B's 46.4e9 parameters in its layers, whichever ranks experts are on;
    16-bit casts of the matrices among them (all but norms) take two bytes each."""
    for ep in (1, 8):
        setup = resolve(Job(model="mixtral-8x7b", gpu="tpu-v5p", gpus=32, framework="maxtext", zero=3, ep=ep, seq=2048))
        (stage,) = build_stages(setup)
        casts = sum(times * loop_casts(setup, block) for block, times in stage.layers)
        attention, experts, router = 2 * 4096 * (4096 + 1024), 8 * 3 * 4096 * 14336, 4096 * 8
        assert casts == pytest.approx(32 * (attention + experts + router) * 2 / 32)
