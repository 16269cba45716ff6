"""Cells of measured runs whose words stand beside what they deny, or mean something else than they resemble."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.interop.runs import Run
from distsim.interop.runs.attention import attention_said
from distsim.interop.runs.context import context_mode
from distsim.interop.runs.expert_routing import sends_once
from distsim.interop.runs.flop_words import flop_count
from distsim.interop.runs.graphs import graphs_of
from distsim.interop.runs.loss_notes import loss_of
from distsim.interop.runs.peaks import measured_peak_bytes
from distsim.interop.runs.sharding import stated_stage
from distsim.interop.runs.sharding_groups import hybrid_group
from distsim.interop.runs.software_names import nearest_profile
from distsim.interop.runs.tuning import tuning_options
from distsim.units import GIB

ROW = {"id": "a", "model": "llama-2-7b", "gpu": "a100-sxm4-80gb", "n_gpus": 16, "seq_len": 4096, "micro_batch": 1,
       "global_batch": 64, "framework": "fsdp"}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**ROW, **cells}.items()}, 2)


def _replay(**cells: Any) -> Replay:
    return replay(_run(**cells))


@pytest.mark.parametrize("kind", ["max reserved (75%)", "nvidia-smi, 95th percentile", "GiB, converted from bytes"])
def test_words_beside_a_peak_that_are_not_its_unit(kind: str) -> None:
    assert measured_peak_bytes(_run(mem_peak_gb_per_gpu=60, mem_kind=kind), capacity=80 * GIB) == 60 * GIB


@pytest.mark.parametrize("model", ["Llama-3.8B", "llama 2.7b", "qwen-3.8b"])
def test_a_size_with_a_point_is_no_generation(model: str) -> None:
    assert "did you mean" in _replay(model=model).reason or "blank" in _replay(model=model).reason


def test_a_batch_of_tokens_is_no_batch_of_sequences() -> None:
    assert _replay(global_batch="4M", dp=16, tp=1, pp=1).reason == ""


@pytest.mark.parametrize(
    ("cell", "said"),
    [("FlashAttention-2 (no FA3)", "flash"), ("cudnn (not flash)", "flash"), ("FA2 instead of eager", "flash"),
     ("w/o flash", "eager"), ("flash=False", "eager"), ("flash disabled", "eager"), ("standard sdpa", "flash"),
     ("flash attention disabled", "eager"), ("use_flash_attn False", "eager"), ("flash 2.5.8", "flash")],
)  # fmt: skip
def test_attention_that_is_denied(cell: str, said: str) -> None:
    assert attention_said(_run(attention=cell)) == said


@pytest.mark.parametrize(
    ("cells", "stage"),
    [({"framework": "DDP + ZeRO-1"}, 1), ({"framework": "Megatron-LM, stage 2 pretraining"}, None),
     ({"framework": "Megatron-LM + ZeRO 0.9"}, None), ({"fsdp_kind": "no distributed optimizer"}, 0),
     ({"fsdp_kind": "_HYBRID_SHARD_ZERO2"}, 2)],
)  # fmt: skip
def test_stages_in_names(cells: dict[str, str], stage: int | None) -> None:
    assert stated_stage(_run(**cells)) == stage


def test_a_stage_is_no_size_of_a_group() -> None:
    assert hybrid_group(_run(fsdp_kind="_HYBRID_SHARD_ZERO2"), 16, 8) == 8


@pytest.mark.parametrize(
    ("cells", "expected"),
    [({"framework": "nanotron", "n_gpus": 128, "tp": 1, "dp": 1, "global_batch": 128}, {"pp": 1}),
     ({"framework": "megatron-lm", "n_gpus": 64, "pp": 1, "dp": 1}, {"tp": 1}),
     ({"framework": "torchtitan", "n_gpus": 64, "dp": 1}, {"tp": 1, "pp": 1, "zero": 3})],
)  # fmt: skip
def test_replicas_leave_no_more_than_can_be(cells: dict[str, Any], expected: dict[str, int]) -> None:
    """No more stages than layers, no tensor parallel ranks beyond a node; torchtitan's dp of one counts copies."""
    found = _replay(**cells)
    assert found.setup is not None
    assert {name: getattr(found.setup.layout, name) for name in expected} == expected


def test_what_notes_deny_does_not_run() -> None:
    assert not any(sends_once(_run(notes=words)) for words in ("no DeepEP", "without hybrid-ep", "deep ep disabled"))
    assert sends_once(_run(notes="DeepEP, fake balanced gate"))
    assert context_mode(_run(notes="Ulysses not used")) is None and context_mode(_run(notes="ring attention")) == "ring"


def test_hosts_without_a_known_link_are_told() -> None:
    row = {"framework": "megatron-lm", "gpu": "trn2", "tp": 8, "pp": 1, "offload": "optimizer"}
    assert "host link" in _replay(**row).reason


def test_ninety_six_gpus_are_no_formula() -> None:
    cards, formula = map(flop_count, ("model, 96 B200", "96Bslh^2(1+s/6h)"))
    assert cards is not None and not cards.narayanan and formula is not None and formula.narayanan


@pytest.mark.parametrize(
    ("words", "group"),
    [("hybrid shard", 8), ("dp_replicate=4 dp_shard=4", 4), ("HSDP 4", 4), ("HSDP (4 replicas)", 4),
     ("HSDP replicate 4", 4), ("HSDP, shard group of 2", 2)],
)  # fmt: skip
def test_groups_that_share_a_copy(words: str, group: int) -> None:
    assert hybrid_group(_run(fsdp_kind=words), 16, 8) == group
    assert stated_stage(_run(fsdp_kind=words)) == 3


@pytest.mark.parametrize(
    ("name", "profile"),
    [("LitGPT (FSDP)", "litgpt"), ("llm-foundry (FSDP)", "llm-foundry"), ("axolotl (FSDP2)", "huggingface"),
     ("HF Trainer DDP", "huggingface"), ("torchtune FSDP2", "torchtune"), ("PyTorch FSDP2", "torchtitan"),
     ("torch DDP", "torch-ddp"), ("Lightning FSDP", "fsdp")],
)  # fmt: skip
def test_who_trains_comes_before_how_it_is_spread(name: str, profile: str) -> None:
    assert nearest_profile(name, split=False) == profile


@pytest.mark.parametrize(
    "notes", ["no liger kernels", "liger is off", "faster vs Liger", "the same script but for liger; so without"]
)
def test_losses_that_are_denied(notes: str) -> None:
    assert loss_of(_run(notes=notes)) is None


@pytest.mark.parametrize(
    ("notes", "once"),
    [("all-to-all dispatcher (no DeepEP/HybridEP)", False), ("neither DeepEP nor HybridEP", False),
     ("no DeepEP or HybridEP yet", False), ("HybridEP, no DeepEP", True), ("DeepEP/HybridEP", True)],
)  # fmt: skip
def test_libraries_that_are_denied_together(notes: str, once: bool) -> None:
    assert sends_once(_run(notes=notes)) is once


@pytest.mark.parametrize(
    "notes",
    ["external CUDA graph turned off", "CUDA graphs were switched off", "CUDA graphs not enabled", "CUDA graphs: none",
     "neither CUDA graphs nor compile", "--cuda-graph-impl: none"],
)  # fmt: skip
def test_graphs_that_are_turned_off(notes: str) -> None:
    assert graphs_of(_run(notes=notes)) == "none"


def test_graphs_that_are_off_besides_training() -> None:
    assert graphs_of(_run(notes="CUDA graphs turned off for eval")) == "modules"


def test_weights_that_notes_speak_of_otherwise_are_still_quantised() -> None:
    cells = {"finetune_kind": "qlora", "framework": "huggingface", "model": "llama-2-70b", "lora_rank": "16"}
    notes = "bitsandbytes nf4 base, accelerated-peft-bnb (frozen weights not upcast)"
    assert tuning_options(Run({**cells, "notes": notes}, 2), {})["quantize"] == "nf4"
    assert "quantize" not in tuning_options(Run({**cells, "finetune_kind": "lora", "notes": notes}, 2), {})
