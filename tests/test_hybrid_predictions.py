"""Multi-token prediction of hybrids: a module of an attention and an expert layer, its weights once for every token.

TFLOP per token are those that Megatron-Bridge's tables imply: reported TFLOP/s over tokens/s, per GPU
(docs/performance-summary.md and its archive, 26.04 to 26.08; rows of presets/runs/published.csv).
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.engine.jobs.flops import active_parameters
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.narrow import wide_here, wide_share
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.step import step_of
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.specs.job import Job
from distsim.specs.model import Model

PUBLISHED = Path(__file__).parents[1] / "presets" / "runs" / "published.csv"
SUPER = {"gpu": "gb300", "gpus": 64, "ep": 64, "seq": 8192, "framework": "megatron-bridge", "zero": 1}


def _setup(model: Model | str = "nemotron-3-super", **more: Any) -> Setup:
    return resolve(Job(model=model, **{**SUPER, **more}))


def _parameters(setup: Setup) -> float:
    return sum(float(one.elements) * times for one, times in build_stages(setup)[-1].parameters)


def test_a_module_is_an_attention_and_an_expert_layer() -> None:
    plain, two = (build_stages(_setup(mtp=modules))[0] for modules in (0, 2))
    before = {block.name: count for block, count in plain.layers}
    after: dict[str, int] = {}
    for block, count in two.layers:
        after[block.name] = after.get(block.name, 0) + count
    assert {name: after[name] - before[name] for name in before} == {"mamba": 0, "moe": 2, "attention": 2}
    assert two.names[-4:] == ("attention", "moe", "attention", "moe")


def test_repeated_weights_count_once() -> None:
    """By hand: three norms, the projection of 2 h to h, attention, router, latent and experts' products."""
    none, one, two = (_parameters(_setup(mtp=modules)) for modules in (0, 1, 2))
    h, latent, experts = 4096, 1024, 512 / 64  # of 64 ranks' experts, this one's
    attention = h * (4096 + 2 * 256) + 4096 * h + h
    moe = h + 512 * h + 2 * h * latent + 2 * 5376 * h + experts * 2 * 2688 * latent
    assert one - none == attention + moe + 2 * h * h + 3 * h
    assert two == one
    apart = load_model("nemotron-3-super").spec.model_copy(update={"mtp_repeated": False})
    assert _parameters(_setup(apart, mtp=2)) - none == 2 * (one - none)


def test_repeated_modules_compute_and_keep_what_others_do() -> None:
    """The same products, exchanges and activations; only states differ, and with them the update."""
    apart = load_model("nemotron-3-super").spec.model_copy(update={"mtp_repeated": False})
    same, other = (_setup(model, mtp=2, micro_batch=1) for model in ("nemotron-3-super", apart))
    assert active_parameters(same) == active_parameters(other)
    reports = [distsim.step(Job(model=s.model, **SUPER, mtp=2)) for s in (same, other)]
    computed = [report.breakdown["compute"] for report in reports]
    assert computed[0] == pytest.approx(computed[1], rel=2e-3)
    assert reports[0].breakdown["expert_parallel"] == pytest.approx(reports[1].breakdown["expert_parallel"], rel=1e-6)
    kept = [report.memory.worst.categories["activations"] for report in reports]
    assert kept[0] == pytest.approx(kept[1], rel=1e-6)
    states = [report.memory.worst.categories["optimizer"] for report in reports]
    assert states[0] < states[1]


@pytest.mark.parametrize(("name", "modules"), [("Nemotron_3_Super", 2), ("Nemotron_3_Ultra", 2)])
def test_reported_tflops_tell_of_two_modules(name: str, modules: int) -> None:
    """With both modules the count is near what the tables imply; without them it is 7 to 12% short."""
    rows = [row for row in csv.DictReader(PUBLISHED.open()) if row["model"] == name]
    assert rows
    model = load_model(name.lower().replace("_", "-")).spec

    def counted(trained: int) -> float:
        setup = _setup(model, mtp=trained)
        layers = model.pattern.count("*") + trained
        return 6 * float(active_parameters(setup)) + 6 * 2 * layers * model.heads * model.head_dim * 8192 / 2

    for row in rows:
        told = float(row["tflops_per_gpu_reported"]) * 1e12 / float(row["tokens_per_s_per_gpu"])
        assert counted(modules) / told == pytest.approx(1, abs=0.02), row["id"]
        assert 0.85 < counted(0) / told < 0.94, row["id"]


def test_modules_and_last_layers_stay_in_sixteen_bits() -> None:
    """Under 8 and 4 bits modules do, and 14 of Super's 88 layers under 4; in bf16 nothing is narrow."""
    shares = {
        (precision, mtp): wide_share(_setup(precision=precision, mtp=mtp))
        for precision in ("mxfp8-parameters", "nvfp4-bf16-grads") for mtp in (0, 2)
    }  # fmt: skip
    assert shares == pytest.approx({
        ("mxfp8-parameters", 0): 0, ("mxfp8-parameters", 2): 4 / 92, ("nvfp4-bf16-grads", 0): 14 / 88,
        ("nvfp4-bf16-grads", 2): 18 / 92,
    })  # fmt: skip
    setup = _setup(precision="mxfp8-parameters", mtp=2)
    assert wide_here(setup, "mtp2.project") and not wide_here(setup, "attention.projection")
    for precision, more in (("bf16", 0.0), ("mxfp8-parameters", 0.009), ("nvfp4-bf16-grads", 0.064)):
        job = Job(model="nemotron-3-super", **{**SUPER, "precision": precision}, mtp=2)
        setup = resolve(job)
        narrow = replace(setup, kernels=setup.kernels.model_copy(update={"wide_layers": 0, "wide_predictions": False}))
        seconds = [step_of(one).breakdown["compute"] for one in (narrow, setup)]
        assert seconds[1] / seconds[0] - 1 == pytest.approx(more, abs=0.004), precision


def test_configurations_name_the_layers_of_a_module() -> None:
    config = {
        "model_type": "nemotron_h", "hybrid_override_pattern": "M*E", "num_hidden_layers": 3, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_nextn_predict_layers": 1, "vocab_size": 128,
        "mamba_num_heads": 8, "mamba_head_dim": 16,
    }  # fmt: skip
    named = read_config({**config, "mtp_hybrid_override_pattern": "*E"}).model
    assert (named.mtp_layers, named.mtp_pattern, named.mtp_module) == (1, "*E", (1, 2))
    assert read_config(config).model.mtp_layers == 0
    with pytest.raises(DistsimError, match="letters of M"):
        read_config({**config, "mtp_hybrid_override_pattern": "*X"})


def test_a_hybrid_without_named_layers_predicts_nothing_more() -> None:
    with pytest.raises(DistsimError, match="nemotron-3-nano-30b-a3b is a hybrid without mtp_pattern"):
        _setup("nemotron-3-nano", ep=8, mtp=1)
    shape = load_model("nemotron-3-super").spec.model_dump()
    with pytest.raises(DistsimError, match="a hybrid needs mtp_layers and mtp_pattern together"):
        Model.read({**shape, "mtp_pattern": ""})
    with pytest.raises(DistsimError, match="with letters from pattern"):
        Model.read({**shape, "mtp_pattern": "*-"})


def test_a_pipelines_last_stage_holds_the_modules() -> None:
    """Beside the head, and under interleaved schedules on the last chunk."""
    for more in ({}, {"vpp": 2}):
        stages = build_stages(_setup(pp=4, ep=16, mtp=2, global_batch=256, **more))
        assert [stage.layer_count for stage in stages] == [22, 22, 22, 26]
    report = distsim.step(
        Job(model="nemotron-3-super", **{**SUPER, "pp": 4, "ep": 16, "vpp": 2, "global_batch": 256}, mtp=2)
    )
    assert (
        report.seconds
        > distsim.step(
            Job(model="nemotron-3-super", **{**SUPER, "pp": 4, "ep": 16, "vpp": 2, "global_batch": 256})
        ).seconds
    )


def test_exchanges_of_a_further_loss_are_told_as_a_loss() -> None:
    """Three sums over tensor parallel ranks for each loss: largest logit, sum of exponentials, target."""
    reports = [distsim.comm(model="nemotron-3-super", **SUPER, tp=2, mtp=modules).to_dict() for modules in (0, 1, 2)]
    calls = [
        sum(one["calls"] for one in report["collectives"] if one["purpose"] == "tensor parallel loss")
        for report in reports
    ]
    assert calls[0] and calls == [calls[0], 2 * calls[0], 3 * calls[0]]


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_a_prediction_gathers_what_its_projection_reads_and_makes(sequence_parallel: bool) -> None:
    """A projection of twice the hidden width reads hidden state and embedding, and each of its ranks makes some columns
    of what its layer reads whole (Megatron-LM multi_token_prediction.py). In tensors of s b h: forward the output
    layer's input once, the projection's twice and its output once; backward the first three again, the lookup's
    gradient, and those of the layer's own tokens, or without sequence parallelism sums of as much as was read."""
    job = {"model": "mimo-7b", "gpu": "h100-sxm", "gpus": 8, "tp": 2, "seq": 4096, "global_batch": 4,
           "sequence_parallel": sequence_parallel}  # fmt: skip

    def gathered(modules: int, phase: str, op: str) -> float:
        rows = distsim.comm(**job, mtp=modules).collectives
        return sum(
            row.calls * row.bytes_per_call for row in rows
            if row.purpose == "tensor parallel head" and (row.phase, row.op) == (phase, op)
        ) / (4096 * 4096 * 2)  # fmt: skip

    def more(phase: str, op: str) -> float:
        return gathered(1, phase, op) - gathered(0, phase, op)

    assert more("forward", "all_gather") == (4 if sequence_parallel else 1)
    assert more("backward", "all_gather") == (5 if sequence_parallel else 0)
    assert more("backward", "reduce_scatter" if sequence_parallel else "all_reduce") == 3
