"""PaddleNLP: products of a tensor parallel region read and keep copies of their own, and reduce their gradients one by
one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.engine.runs.noted_kernels import TOLD_OF_TORCH, told_kernels
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.software_names import nearest_profile

FIXED = {"framework": "paddlenlp", "gpu": "a100-sxm4-80gb", "seq": 2048, "micro_batch": 4}
LAYERS, HIDDEN, TOKENS = 32, 4096, 4 * 2048  # of llama-7b


@pytest.mark.parametrize(
    ("name", "profile"),
    [("paddlenlp", "paddlenlp"), ("Paddle (PaddleNLP)", "paddlenlp"), ("Paddle (FleetX)", "paddlenlp"),
     ("PaddleFormers", "paddlenlp"), ("NVIDIA DeepLearningExamples PaddlePaddle", "megatron-lm")],
)  # fmt: skip
def test_its_dynamic_graphs_have_a_profile_and_its_fused_static_ones_another(name: str, profile: str) -> None:
    assert nearest_profile(name, split=True) == profile


def kept(**more: Any) -> float:
    """Bytes that a layer keeps until backward."""
    return float(distsim.memory("llama-7b", **{**FIXED, "gpus": 8, "zero": 1, **more}).worst.saved.per_layer)


@pytest.mark.parametrize(("tp", "sharded", "copies"), [(1, False, 0), (2, False, 3), (2, True, 0)])
def test_each_product_keeps_a_copy_of_what_it_reads(tp: int, sharded: bool, copies: int, tmp_path: Path) -> None:
    """Two more for queries, keys and values, one more for gate and up."""
    bare = tmp_path / "bare.toml"
    bare.write_text('based_on = "paddlenlp"\n[kernels]\ninput_copies = false\n')
    job = {"tp": tp, "sequence_parallel": sharded}
    assert kept(**job) - kept(**job, framework=str(bare)) == copies * TOKENS * HIDDEN * 2


def test_each_product_reduces_its_own_input_gradient() -> None:
    report = distsim.comm("llama-7b", **FIXED, gpus=2, tp=2, global_batch=4)
    calls = {
        phase: sum(one.calls for one in report.collectives
                   if one.group == "tp" and one.op == "all_reduce" and one.phase == phase and "layers" in one.purpose)
        for phase in ("forward", "backward")
    }  # fmt: skip
    assert calls == {"forward": 2 * LAYERS, "backward": 5 * LAYERS}


def test_pipelines_are_refused_beside_sharded_gradients() -> None:
    with pytest.raises(DistsimError, match="ZeRO"):
        distsim.memory("llama-7b", **FIXED, gpus=8, pp=2, zero=2)


@pytest.mark.parametrize(
    ("notes", "kernels"),
    [("config json: fused rms norm and rope, flash attention", {"norm": "fused", "rope": "fused"}),
     ("flash attention; fused rms norm; 4M tokens a step", {"norm": "fused"}),
     ("recompute=True, no fused rms norm", {}), ("fused rope", {"rope": "fused"})],
)  # fmt: skip
def test_notes_tell_of_fused_kernels(notes: str, kernels: dict[str, str]) -> None:
    assert told_kernels(Run({"notes": notes}, 1), TOLD_OF_TORCH) == kernels
