"""Transformer Engine's cross entropy, which writes gradients over the logits."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay
from distsim.interop.runs import Run

CELLS = {"model": "llama-3-8b", "year": "2026", "seq_len": "4096", "gpu": "h100-sxm", "n_gpus": "8", "tp": "1",
         "pp": "1", "zero_stage": "1", "micro_batch": "1", "global_batch": "32", "precision": "bf16",
         "recompute": "none", "framework": "megatron-core", "mem_peak_gb_per_gpu": "60", "mem_kind": "allocated",
         "attention": "flash"}  # fmt: skip


@pytest.mark.parametrize("words", ["TE fused cross entropy", "--cross-entropy-fusion-impl te"])
def test_its_logits_take_two_bytes(words: str) -> None:
    """Megatron core's own keeps fp32 logits and has 16-bit ones in transit."""
    own, overwritten = (replay(Run({**CELLS, "notes": notes}, 2)) for notes in ("", words))
    assert own.predicted_peak is not None and overwritten.predicted_peak is not None
    saved = own.predicted_peak - overwritten.predicted_peak
    assert saved == pytest.approx(4 * 4096 * 128256, rel=0.05)
