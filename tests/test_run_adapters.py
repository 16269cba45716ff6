"""Products with adapters as notes of measured runs name them."""

from __future__ import annotations

import pytest

from distsim.interop.runs import Run
from distsim.interop.runs.tuning import tuning_options
from distsim.specs.tuning import targets_named

ALL = targets_named("all-linear")


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
