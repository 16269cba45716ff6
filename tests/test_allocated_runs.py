"""Peaks that torch allocated for transformers' models, known to the byte: PowerLM 3B on A100s, 4,096 tokens
(foundation-model-stack/fms-acceleration scripts/benchmarks/refs/a100_80gb_granite.csv, September 2024)."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay
from distsim.interop.runs import Run

CELLS = {"model": "ibm/PowerLM-3b", "family": "granite", "year": "2024-09", "layers": "40", "hidden": "2304",
         "heads": "36", "kv_heads": "36", "head_dim": "64", "ffn_hidden": "9216", "gated_mlp": "1", "vocab": "49152",
         "tied_embeddings": "1", "seq_len": "4096", "gpu": "A100 80GB", "recompute": "full", "attention": "flash-2",
         "framework": "huggingface", "mem_kind": "allocated bytes", "grad_accum": "1"}  # fmt: skip
TUNED = "LoRA alpha 16 on q,k,v,o, dropout 0.1"
PREPARED = f"bitsandbytes nf4 base, baseline-peft-bnb (prepare_model_for_kbit_training); {TUNED}"
LEFT = f"bitsandbytes nf4 base, accelerated-peft-bnb (frozen base not upcast); {TUNED}"
SHARDED = "; FSDP TRANSFORMER_BASED_WRAP, BACKWARD_PRE; one node"


@pytest.mark.parametrize(
    ("kind", "batch", "gpus", "notes", "measured"),
    [
        ("full", 4, 1, "", 35134836736), ("full", 8, 1, "", 47059390976), ("full", 4, 2, SHARDED, 35169178112),
        ("lora", 8, 1, TUNED, 33176473088), ("lora", 4, 2, TUNED + SHARDED, 16835885568),
        ("qlora", 4, 1, PREPARED, 18174161920), ("qlora", 8, 1, PREPARED, 34177070080),
        ("qlora", 4, 2, PREPARED + SHARDED, 14319836672), ("qlora", 8, 1, LEFT, 28134687232),
    ],
)  # fmt: skip
def test_fp32_logits_replace_the_narrow_and_an_fp32_embedding_widens_the_stream(
    kind: str, batch: int, gpus: int, notes: str, measured: int
) -> None:
    """Logits take 12 bytes each (fp32, their shifted copy, the log-softmax), not 14. Where embedding and norms are made
    fp32 the stream between layers is, too, unless FSDP gathers them in 16 bits."""
    tuned = {"lora_rank": "16"} if kind != "full" else {}
    sharded = {"fsdp_kind": "FSDP1 FULL_SHARD"} if gpus > 1 else {}
    cells = {"n_gpus": str(gpus), "micro_batch": str(batch), "global_batch": str(batch * gpus), "finetune_kind": kind,
             "precision": "pure-bf16" if kind == "full" and gpus == 1 else "bf16", "notes": notes,
             "mem_peak_gb_per_gpu": str(measured), **tuned, **sharded}  # fmt: skip
    assert replay(Run({**CELLS, **cells}, 2)).memory_error == pytest.approx(0, abs=0.025)
