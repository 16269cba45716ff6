"""What has an adapter where nobody names products: peft's choice for a model's family, and a note where it has none."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.jobs.kin import kin_of
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run

OPTIONS: dict[str, Any] = {"gpu": "h200-sxm", "gpus": 1, "seq": 512, "lora_rank": 8}


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        ("llama-7b", "q,v"), ("qwen3-8b", "q,v"), ("phi-2", "q,v,up,down"), ("gpt2", "q,k,v"), ("bloom-7b1", "q,k,v"),
        ("falcon-7b", "q,k,v"), ("nemotron-3-nano", "q,k,v,o"),
    ],
)  # fmt: skip
def test_families_have_their_own(model: str, targets: str) -> None:
    report = distsim.memory(model, framework="huggingface", **OPTIONS)
    assert report.to_dict()["job"]["lora_targets"] == targets
    assert not [note for note in report.setup.notes if "lora-targets" in note]


@pytest.mark.parametrize("model", ["mixtral-8x7b", "gpt-oss-20b", "olmo-2-7b"])
def test_what_is_taken_for_granted_is_told(model: str) -> None:
    """peft asks for target modules of these (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING)."""
    words = "--lora-targets not given: using q,v"
    report = distsim.memory(model, framework="huggingface", **OPTIONS)
    assert any(note.startswith(words) for note in report.setup.notes)
    named = distsim.memory(model, framework="huggingface", lora_targets="q,v", **OPTIONS)
    assert not any(note.startswith(words) for note in named.setup.notes)


def test_nothing_that_could_be_taken() -> None:
    with pytest.raises(DistsimError, match="no default --lora-targets for mamba models"):
        distsim.memory("mamba-130m", framework="huggingface", **OPTIONS)


@pytest.mark.parametrize("framework", ["fsdp", "deepspeed", "torch-ddp"])
def test_what_wraps_a_model_takes_what_peft_around_it_takes(framework: str) -> None:
    """peft's choice is the model's, whatever shards it: adapters on all products lengthen the step."""
    options = {**OPTIONS, "framework": framework, "model": "llama-3-8b", "micro_batch": 8,
               "precision": "bf16"}  # fmt: skip
    report = distsim.memory(**options)
    assert report.to_dict()["job"]["lora_targets"] == "q,v"
    assert distsim.memory(**{**options, "model": "gpt2"}).to_dict()["job"]["lora_targets"] == "q,k,v"
    seconds = [distsim.step(**{**options, "lora_targets": targets}).seconds for targets in (None, "all-linear")]
    assert seconds[1] > 1.1 * seconds[0]
    with pytest.raises(DistsimError, match="no default --lora-targets for mamba models"):
        distsim.memory(**{**options, "model": "mamba-130m"})


def test_other_frameworks_keep_theirs() -> None:
    report = distsim.memory("olmo-2-7b", framework="litgpt", **OPTIONS)
    assert report.to_dict()["job"]["lora_targets"] == "q,v"
    assert not [note for note in report.setup.notes if "lora-targets" in note]


@pytest.mark.parametrize(
    ("model", "each"),
    [("llama-3.1-8b", 32 * (8192 + 5120 + 5120 + 8192)), ("gpt2-xl", 48 * (1600 + 4800 + 3200)),
     ("t5-3b", (24 + 24 + 24) * 4 * (1024 + 4096))],
)  # fmt: skip
def test_fsdp_wraps_the_modules_that_peft_adapts(model: str, each: int) -> None:
    """Queries, keys and values have an adapter each, as around the same model without FSDP; GPT-2's are one module."""
    for framework in ("fsdp", "huggingface"):
        job: dict[str, Any] = {"model": model, "framework": framework, "gpus": 8, "gpu": "h100-sxm"}
        stage = distsim.memory(**job, lora_rank=16, lora_targets="attention").stages[0]
        assert stage.states.dense_parameters == 16 * each, framework


EVERY = "q,k,v,o,gate,up,down"
TRAINERS = [("huggingface", "q,v", "none", True), ("llama-factory", EVERY, "full", False),
            ("LLaMAFactory", EVERY, "full", False), ("axolotl", EVERY, "full", False),
            ("ms-swift", EVERY, "full", True), ("trl", "q,v", "full", False)]  # fmt: skip


@pytest.mark.parametrize(("framework", "targets", "recompute", "upcast"), TRAINERS)
def test_trainers_around_transformers_have_their_own_defaults(
    framework: str, targets: str, recompute: str, upcast: bool
) -> None:
    """All had been names of transformers' Trainer, which adapts queries and values and recomputes nothing."""
    report = distsim.memory("llama-3-8b", framework=framework, quantize="nf4", **OPTIONS)
    job = report.to_dict()["job"]
    assert (job["lora_targets"], job["recompute"]) == (targets, recompute)
    assert report.setup.framework.adapters.others_fp32 == upcast
    assert kin_of(report.setup.framework).like == "huggingface"


def test_a_default_of_a_trainer_gives_way_to_what_is_stated() -> None:
    plain = distsim.memory("llama-3-8b", framework="huggingface", **OPTIONS)
    asked = {"lora_targets": "q,v", "recompute": "none"}
    for framework in ("axolotl", "ms-swift"):
        assert distsim.memory("llama-3-8b", framework=framework, **asked, **OPTIONS).peak == plain.peak
    chunks = distsim.memory("llama-3-8b", framework="huggingface", loss="chunked-nll", recompute="full", **OPTIONS)
    assert distsim.memory("llama-3-8b", framework="trl", **OPTIONS).peak == chunks.peak


@pytest.mark.parametrize("name", ["axolotl", "llama-factory", "ms-swift", "trl", "axolotl 0.6", "huggingface"])
def test_measured_runs_of_trainers_are_replayed_by_their_notes(name: str) -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "1", "seq_len": "2048", "micro_batch": "1",
             "lora_rank": "16", "finetune_kind": "lora", "year": "2026", "framework": name}  # fmt: skip
    assert setup_of(Run(cells, 1)).framework.name == "huggingface"


def test_a_reference_beside_trl_is_told_that_its_default_loss_is_another_trainers() -> None:
    job = {**OPTIONS, "model": "llama-3-8b", "framework": "trl", "reference": "base", "micro_batch": 2}
    assert any("--loss selective" in note for note in distsim.memory(**job).setup.notes)
    for other in ({"loss": "selective"}, {"reference": None}):
        assert not any("--loss selective" in note for note in distsim.memory(**{**job, **other}).setup.notes)
