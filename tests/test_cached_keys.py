"""Keys and values of a cache that nobody switched off, which a loop holds with the logits."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay
from distsim.interop.runs import Run

CELLS = {"model": "llama-2-7b", "year": "2023", "seq_len": "4096", "gpu": "A100 80GB", "gpus_per_node": "8",
         "fsdp_kind": "FSDP1 FULL_SHARD", "micro_batch": "4", "grad_accum": "1", "precision": "amp-bf16",
         "recompute": "full", "attention": "flash", "optimizer": "adamw", "framework": "fsdp",
         "mem_kind": "allocated"}  # fmt: skip
CACHED = "model(**batch) leaves use_cache on, so past_key_values stay alive through backward with the logits"


@pytest.mark.parametrize(
    ("gpus", "kind", "measured"),
    [(8, "lora", 32.6), (8, "full", 38.7), (64, "lora", 29.8), (64, "full", 30.4)],
)
def test_checkpoints_around_layers_keep_what_they_give_to_a_cache(gpus: int, kind: str, measured: float) -> None:
    """intelligent-machine-learning/dlrover atorch/examples/llama2/README.md: torch's allocated peak in GiB."""
    tuned = {"finetune_kind": kind, "lora_rank": "16"} if kind == "lora" else {}
    cells = {**CELLS, **tuned, "n_gpus": str(gpus), "mem_peak_gb_per_gpu": str(measured)}
    plain, cached = (replay(Run({**cells, "notes": notes}, 2)) for notes in ("", CACHED))
    assert plain.predicted_peak is not None and cached.predicted_peak is not None
    kept = 2 * 4 * 4096 * 4096 * 32 * 2  # keys and values of 32 layers in bf16
    assert cached.predicted_peak - plain.predicted_peak == pytest.approx(kept, rel=0.01)
    assert cached.memory_error == pytest.approx(0, abs=0.15)
    assert replay(Run({**cells, "recompute": "none", "notes": CACHED}, 2)).predicted_peak == (
        replay(Run({**cells, "recompute": "none"}, 2)).predicted_peak
    )
