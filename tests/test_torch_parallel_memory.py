"""Parallel jobs of plain torch against what its own allocations were counted to be (torch 2.13, transformers 5.24, fake
tensors): tensor parallel modules, pipelines, sharded experts, rings of context, orthogonalised updates."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.footprint.orthogonalised import orthogonalised, orthogonalising_bytes
from distsim.engine.footprint.saved import layer_saved_bytes
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import MemoryReport
from distsim.specs.job import Job

LLAMA = {"gpu": "h200-sxm", "gpus": 8, "seq": 4096, "precision": "pure-bf16", "framework": "huggingface"}
MIXTRAL = catalog.load("models", "mixtral-8x7b").model_copy(update={"layers": 2, "name": "two layers of mixtral"})


def _allocated(report: MemoryReport) -> float:
    """The peak without what no tensor takes, in GB."""
    worst = report.worst
    return float(worst.peak - worst.categories["framework"]) / 1e9


def _saved_of_a_layer(**options: Any) -> float:
    setup = resolve(Job(model="llama-3-8b", **{**LLAMA, **options}))
    return float(layer_saved_bytes(setup, build_stages(setup)[0].layers[0][0], 0)) / 1e6


def test_logits_of_transformers_tensor_parallel_models_are_whole() -> None:
    assert _allocated(distsim.memory("llama-3-8b", tp=8, **LLAMA)) == pytest.approx(23.272, rel=0.001)
    assert _allocated(distsim.memory("llama-3-8b", tp=8, loss_parallel=True, **LLAMA)) < 19


def test_what_columns_read_stays_gathered() -> None:
    """161.55 MB a layer on each of eight ranks; Megatron's own function gathers again, and keeps 59 less."""
    assert _saved_of_a_layer(tp=8, sequence_parallel=True) == pytest.approx(161.55, rel=0.001)
    whole = 2 * 4096 * 4096 / 1e6
    megatron = _saved_of_a_layer(tp=8, sequence_parallel=True, framework="megatron-core")
    assert _saved_of_a_layer(tp=8, sequence_parallel=True) - megatron > 2 * whole * 7 / 8 * 0.9
    gathers = distsim.comm("llama-3-8b", tp=8, sequence_parallel=True, **LLAMA).to_dict()["collectives"]
    calls = {"forward": 0, "backward": 0}
    for one in (row for row in gathers if row["phase"] in calls):
        calls[one["phase"]] += one["calls"] * (one["op"] == "all_gather" and one["group"] == "tp")
    assert 0 < calls["backward"] <= calls["forward"]  # gradients of what rows gave; no product's own input


def test_the_gradient_of_a_lookup_is_whole_on_each_rank() -> None:
    """2,842,723,840 bytes before the optimizer's step of four layers on eight ranks, the head's a shard."""
    options = {**LLAMA, "tp": 8, "sequence_parallel": True, "recompute": "full", "loss_parallel": True}
    report = distsim.memory("llama-3-8b", **options)
    moments = {one.name: one for one in report.worst.moments}
    whole = 128256 * 4096 * 2
    tied = distsim.memory("llama-3.2-3b", **options)
    assert {one.name: one for one in tied.worst.moments}["optimizer step"].temporaries == 0
    assert moments["optimizer step"].activations == pytest.approx(whole * 7 / 8, rel=1e-6)


@pytest.mark.parametrize("framework", ["torchtitan", "fsdp", "nemo-automodel"])
def test_pipelines_of_torch_make_a_tensor_for_each_message(framework: str) -> None:
    """33,554,432 bytes more for each micro-batch on the second of four stages of Llama 8B at 2,048 tokens."""
    job = {"gpu": "h200-sxm", "gpus": 4, "pp": 4, "seq": 2048, "precision": "pure-bf16", "zero": 0, "schedule": "1f1b"}

    def buffers(stage: int, micro_batches: int) -> float:
        report = distsim.memory("llama-3-8b", framework=framework, global_batch=micro_batches, **job)
        return float(report.stages[stage].categories["buffers"])

    message = 2048 * 4096 * 2
    assert buffers(1, 16) - buffers(1, 8) == 8 * 2 * message
    assert buffers(0, 16) - buffers(0, 8) == buffers(3, 16) - buffers(3, 8) == 8 * message
    megatron = [distsim.memory("llama-3-8b", framework="megatron-core", global_batch=m, **job) for m in (8, 16)]
    assert megatron[0].stages[1].categories["buffers"] == megatron[1].stages[1].categories["buffers"]


@pytest.mark.parametrize(("gpus", "no_sync", "counted"), [(16, True, 35.73), (8, True, 26.9), (16, False, 29.66)])
def test_experts_that_more_ranks_share_than_there_are(gpus: int, no_sync: bool, counted: float) -> None:
    """FSDP2 fills shards up to whole experts; gradients that wait have no filling."""
    report = distsim.memory(
        MIXTRAL, framework="kempnerforge", gpu="h200-sxm", gpus=gpus, zero=3, seq=256, global_batch=2 * gpus,
        precision="fsdp-bf16", optimizer="adamw-fused", recompute="full", attention="flash", no_sync=no_sync,
    )  # fmt: skip
    assert _allocated(report) == pytest.approx(counted, rel=0.03)


def test_a_ring_of_torch_keeps_its_output_twice() -> None:
    """1,712.4 MB a layer of 32,768 tokens on four ranks, but for the last, where no concatenation follows."""
    one = {"cp": 4, "gpus": 4, "zero": 3, "seq": 32768, "attention": "flash"}
    assert _saved_of_a_layer(**one, cp_mode="ring") == pytest.approx(1712.39, rel=1e-4)
    copied = 32768 / 4 * 4096 * 2 / 1e6
    alone = _saved_of_a_layer(gpus=1, seq=8192, attention="flash")
    assert _saved_of_a_layer(**one, cp_mode="ring") - alone == pytest.approx(copied, rel=1e-4)


def test_newton_schulz_holds_three_matrices_and_two_squares() -> None:
    """419,430,400 bytes beside a gate or up projection of 14,336 by 4,096."""
    setup = resolve(Job(model="llama-3-8b", optimizer="muon", **{**LLAMA, "gpus": 1}))
    assert orthogonalising_bytes(setup, build_stages(setup)[0]) == 419_430_400
    muon = distsim.memory("llama-3-8b", optimizer="muon", **{**LLAMA, "gpus": 1})
    assert muon.worst.moments[-1].temporaries >= 419_430_400


def test_torch_s_muon_leaves_experts_in_one_tensor_to_adamw() -> None:
    """torch.optim.Muon only takes tensors of two dimensions, transformers 5 has a layer's experts in three."""
    kept = {}
    for optimizer in ("adamw", "muon"):
        report = distsim.memory("qwen3-30b-a3b", optimizer=optimizer, recompute="full", **{**LLAMA, "gpus": 1})
        kept[optimizer] = report.worst.categories["optimizer"]
    assert 0.95 < kept["muon"] / kept["adamw"] < 1
    setup = resolve(Job(model="qwen3-30b-a3b", optimizer="muon", **{**LLAMA, "gpus": 1, "framework": "torchtitan"}))
    experts = [one for one, _ in build_stages(setup)[0].parameters if one.group == "expert"]
    assert experts and all(orthogonalised(setup, one) for one in experts)
