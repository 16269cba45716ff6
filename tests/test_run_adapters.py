"""Products with adapters as notes of measured runs name them."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import replay
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.interop.runs.tuning import tuning_options
from distsim.specs.tuning import targets_named

ALL = targets_named("all-linear")
LORA = {
    "model": "qwen3-8b", "gpu": "h100-sxm", "n_gpus": "1", "seq_len": "2048", "micro_batch": "2", "grad_accum": "4",
    "precision": "bf16", "finetune_kind": "lora", "lora_rank": "16", "notes": "LoRA on all 7 projections",
}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({**LORA, **cells}, 2)


@pytest.mark.parametrize(
    ("notes", "targets"),
    [
        ("LoRA alpha 16 on q,k,v,o, dropout 0.1", "q,k,v,o"), ("adapters on q, k and v alone (config_lora)", "q,k,v"),
        ("LoRA rank 4 (query and value), bf16 weights", "q,v"), ("LoRA on q_proj and v_proj; packed", "q,v"),
        ("LoRA r 8 on q_proj and v_proj (targets on the command line)", "q,v"), ("LoRA on all 7 projections", ALL),
        ("LoRA rank 8 on linear_qkv and linear_proj (5308416 parameters)", "q,k,v,o"),
        ("LoRA r=16 on linear_qkv linear_proj linear_fc1 linear_fc2 (135.66M)", "q,k,v,o,gate,up,down"),
        ("LoRA r32 on qkv, proj, fc1, fc2; Alpaca", "q,k,v,o,gate,up,down"), ("adapters on attention only", "q,k,v,o"),
        ("LoRA (rank 16, attention projections; packed)", "q,k,v,o"), ("LoRA (rank 16, on attention), x", "q,k,v,o"),
        ("LoRA rank 8, alpha 32, on query_key_value", "q,k,v"), ("target modules v_proj,q_proj", "q,v"),
        ("LoRA on linear_q_proj, linear_kv_down_proj, linear_kv_up_proj and linear_proj", None), ("targets open", None),
        ("LoRA on *_proj dim 16", None), ("LoRA, packed on q-cards", None), ("LoRA on attention and MLP", None),
        ("target modules DEFAULT", None), ("LoRA rank 16 alpha 32 as logged", None), ("up to 4 LoRA runs", None),
    ],
)  # fmt: skip
def test_products_that_notes_list(notes: str, targets: str | None) -> None:
    run = Run({"finetune_kind": "lora", "lora_rank": "16", "notes": notes}, 2)
    told = tuning_options(run, {}).get("lora_targets")
    assert (told and targets_named(told)) == targets


@pytest.mark.parametrize(("name", "targets"), [("linear_proj", "o"), ("c_proj", "o,down"), ("o_proj", "o")])
def test_names_that_end_like_all(name: str, targets: str) -> None:
    """They were no choice, and the suggestion was the same name."""
    assert targets_named(name) == targets


def test_unsloth_adds_adapters_in_products_and_fuses_what_lies_between() -> None:
    """Its products add (addmm_), its norms, rotations, gates and loss are kernels in Triton, as Liger's are. The run is
    of invergent-ai/surogate's table: 8,900 tokens per second."""
    peft, own = (setup_of(_run(framework=name)) for name in ("trl", "unsloth"))
    assert (peft.framework.adapters.summed, own.framework.adapters.summed) == ("apart", "product")
    fused = (own.kernels.norm, own.kernels.rope, own.kernels.activation, own.kernels.loss)
    assert fused == ("fused", "fused", "fused", "with-head") and peft.kernels.norm == "eager"
    assert own.framework.adapters.fp32 and not own.framework.adapters.own_inputs
    predicted = replay(_run(framework="unsloth", tokens_per_s_per_gpu="8900", year="2026"))
    assert predicted.error is not None and abs(predicted.error) < 0.2


def test_a_usual_dropout_gives_way_to_experts_that_are_tensors() -> None:
    """peft refuses it there, and no row tells of it."""
    mixture = setup_of(_run(framework="trl", model="qwen3-30b-a3b"))
    assert mixture.job.lora_dropout == 0 and setup_of(_run(framework="trl")).job.lora_dropout == 0.05
    attention = setup_of(_run(framework="trl", model="qwen3-30b-a3b", notes="LoRA on q,k,v,o"))
    assert attention.job.lora_dropout == 0.05


@pytest.mark.parametrize(
    ("notes", "summed"),
    [("all three fused LoRA kernels", "product"), ("lora_mlp_kernel and lora_qkv_kernel on", "product"),
     ("no fused LoRA kernels", "apart")],
)  # fmt: skip
def test_kernels_like_unsloths_are_read_from_notes(notes: str, summed: str) -> None:
    assert (
        setup_of(_run(framework="axolotl", notes=f"LoRA on all 7 projections; {notes}")).framework.adapters.summed
        == summed
    )
