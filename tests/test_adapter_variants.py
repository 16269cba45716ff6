"""Dropout, modules trained whole and DoRA of peft, against PyTorch's own bookkeeping of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from recordings import figured
from test_saved_tensors import PRECISION, RECOMPUTE, model

import distsim
from distsim.engine.jobs import resolve as resolving
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.errors import DistsimError
from distsim.report.search import command
from distsim.specs.flags import typed
from distsim.specs.job import Job

with open(Path(__file__).parent / "oracles" / "torch_lora_variants.csv", newline="") as file:
    ROWS = list(csv.DictReader(file))
PARTS = {"": None, "embed_tokens": "embedding", "lm_head": "head", "embed_tokens+lm_head": "embedding,head"}
TIED = ("qwen3-4b", "embed_tokens")
"""The output layer keeps the frozen original there, and no gradient; here both are one matrix, which trains."""
JOB: dict[str, Any] = {"gpu": "a100-sxm4-80gb", "gpus": 1, "seq": 2048, "lora_rank": 16, "lora_targets": "all-linear"}


def setup_of(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Setup:
    spec = model(row["model"], int(row["layers"]))
    monkeypatch.setattr(resolving, "load_model", lambda _: LoadedModel(spec))
    rank, _, targets = row["lora"].partition(" ")
    return resolve(
        Job(
            model=row["model"], gpu="h100-sxm", gpus=1, framework="huggingface", seq=int(row["seq"]),
            micro_batch=int(row["micro_batch"]), precision=PRECISION[row["dtype_scheme"]],
            recompute=RECOMPUTE[row["recompute"]], lora_rank=int(rank), lora_targets=targets.replace("+", ","),
            lora_dropout=float(row["dropout"]), lora_whole=PARTS[row["whole"]], dora=row["dora"] == "1",
        )
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_what_torch_keeps(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """States, saved bytes and the peak are those of PyTorch."""
    saved, held, peak = figured(setup_of(row, monkeypatch))
    assert held.parameters == pytest.approx(int(row["static_param"]), rel=5e-5)
    assert held.gradients == int(row["bwd_end_grad"])
    assert held.optimizer == pytest.approx(int(row["static_optim"]), rel=1e-4)
    tied = (row["model"], row["whole"]) == TIED
    if row["saved_total"]:
        assert saved.total == pytest.approx(int(row["saved_total"]), rel=0.01 if tied else 1e-3)
    short = row["dora"] == "1" and row["seq"] == "256"  # at their peak in the layers, where temporaries count
    assert peak == pytest.approx(int(row["peak_total"]), rel=0.015 if short else 0.002 if tied else 2e-4)


def test_an_embedding_and_its_tied_output_layer_are_trained_apart() -> None:
    """peft copies each: two gradients and two states for the one matrix, which stays besides; and a note says so."""
    one = distsim.memory("qwen3-4b", **JOB, framework="huggingface", lora_whole="embedding")
    both = distsim.memory("qwen3-4b", **JOB, framework="huggingface", lora_whole="embedding,head")
    named = distsim.memory("qwen3-4b", **JOB, framework="huggingface", lora_whole="lm_head,embed_tokens")
    assert named.peak == both.peak
    table = 151936 * 2560
    assert both.worst.states.dense_parameters - one.worst.states.dense_parameters == table
    assert both.worst.categories["parameters"] - one.worst.categories["parameters"] == 2 * table
    assert [note for note in both.setup.notes if "a copy of each" in note]
    assert not [note for note in one.setup.notes if "a copy of each" in note]
    other = distsim.memory("qwen3-4b", **JOB, framework="torchtune", lora_whole="embedding,head")
    assert not [note for note in other.setup.notes if "a copy of each" in note]


@pytest.mark.parametrize("framework", ["fsdp", "torch-ddp", "deepspeed", "huggingface"])
def test_peft_keeps_the_originals_whatever_wraps_it(framework: str) -> None:
    """ModulesToSaveWrapper holds the frozen module beside the copy that trains."""
    job = {**JOB, "precision": "pure-bf16", "framework": framework, "zero": 0}
    plain, whole = (distsim.memory("llama-3-8b", **job, lora_whole=part).worst for part in (None, "head"))
    assert whole.categories["parameters"] - plain.categories["parameters"] == 2 * 128256 * 4096


def test_dora_takes_its_time() -> None:
    """A unit matrix and the whole weight pass through memory for each product and pass: more where tokens are few."""

    def ratio(seq: int, **more: Any) -> float:
        job = {**JOB, "framework": "huggingface", "seq": seq, **more}
        return distsim.step("llama-3-8b", **job, dora=True).seconds / distsim.step("llama-3-8b", **job).seconds

    long, short = ratio(8192), ratio(2048)
    assert 1.1 < long < short < 3
    assert ratio(2048, lora_dropout=0.05) > short


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "llama-3-8b", "framework": "nemo"}, "how nemo runs DoRA"),
        ({"model": "llama-3-8b", "framework": "fsdp", "gpus": 2, "tp": 2}, "norms of whole weights"),
        ({"model": "qwen3-30b-a3b", "framework": "huggingface"}, "experts and routers"),
        ({"model": "llama-3-8b", "lora_rank": None, "lora_targets": None}, "--dora has no effect without adapters"),
    ],
    ids=str,
)  # fmt: skip
def test_dora_that_nobody_runs_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        distsim.memory(**{**JOB, **options}, dora=True)


def test_litgpt_loads_weights_whole() -> None:
    """Two published peaks of LoRA under FSDP are all weights beside a rank's shard of them (7B on two GPUs 22.18 GB,
    13B on four 35.57); the moment tells of quantising only where something is quantised."""
    for name, gpus, measured in (("llama-2-7b", 2, 22.18e9), ("llama-2-13b", 4, 35.57e9)):
        job: dict[str, Any] = {"gpu": "a100-sxm4-40gb", "gpus": gpus, "seq": 1304, "framework": "litgpt", "zero": 3}
        report = distsim.memory(name, **job, recompute="full", lora_rank=8)
        assert report.peak == pytest.approx(measured, rel=0.1)
        assert report.worst.peak_moment == "loading, all weights on each rank"
    packed = distsim.memory("llama-2-7b", **{**job, "zero": 0, "gpus": 1}, lora_rank=8, quantize="nf4")
    assert packed.worst.peak_moment == "loading, before weights are quantised"


def test_commands_name_targets_in_short() -> None:
    """``all-linear`` is no list of every family's modules in what a search says to type."""
    found = distsim.search("llama-3-8b", **{**JOB, "gpus": 2}, framework="huggingface", dora=True)
    assert all(one.report.setup.layout.tp == 1 for one in found.best)
    told = command(found.best[0])
    assert "--lora-targets all-linear" in told and "--dora" in told
    assert typed({"lora_targets": "q,v"}) == "--lora-targets q,v"
    assert typed({"lora_targets": "gate,up"}) == "--lora-targets gate,up"
    assert typed({"lora_targets": "q,k,v,o"}) == "--lora-targets attention"


def test_what_fsdp_gathers_in_16_bits_multiplies_in_them() -> None:
    """Adapters' fp32 shards say nothing of their products under FSDP's mixed precision."""
    job: dict[str, Any] = {**JOB, "model": "llama-3-8b", "gpus": 8, "zero": 3, "framework": "fsdp"}
    mixed, wide = (resolve(Job(**job, precision=name)).tuning for name in ("fsdp-bf16", "fp32"))
    assert mixed is not None and wide is not None
    assert (mixed.product_bytes, mixed.adapter.parameter_bytes) == (2, 4)
    assert (wide.product_bytes, wide.adapter.parameter_bytes) == (4, 4)


def test_frozen_weights_that_a_default_makes_fp32_are_told() -> None:
    usual = {"model": "llama-3.1-8b", "gpus": 8, "seq": 2048, "lora_rank": 16}
    told = {name: "frozen weights are fp32" in " ".join(distsim.memory(**usual, **more).notes)
            for name, more in {"fsdp": {"framework": "fsdp"}, "stated": {"framework": "fsdp", "precision": "fsdp-bf16"},
                               "packed": {"framework": "fsdp", "quantize": "nf4"},
                               "trainer": {"framework": "huggingface"}}.items()}  # fmt: skip
    assert told == {"fsdp": True, "stated": False, "packed": False, "trainer": False}
