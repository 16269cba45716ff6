"""Norms and activations that a network's author composed of elementary operations: what they keep and take."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.launches import launches
from distsim.engine.kernels.norm_passes import composed_norm, norm_cost
from distsim.engine.kernels.passes import moved_bytes
from distsim.interop.runs import Run
from distsim.specs.job import Job

GPT2 = {
    "id": "own", "model": "gpt2", "family": "gpt", "layers": "12", "hidden": "768", "heads": "12", "seq_len": "1024",
    "vocab": "50257", "tied_embeddings": "0", "gpu": "a100-sxm4-80gb", "n_gpus": "1", "micro_batch": "8",
    "global_batch": "8", "precision": "pure-bf16", "recompute": "none", "attention": "eager", "compile": "0",
    "optimizer": "adamw-fused", "framework": "torch-ddp", "year": "2025", "step_time_s": "0.18",
}  # fmt: skip
OWN = "network written by hand; own LayerNorm and GELU"
SAVED_SECONDS = 8192 / 45486 - 8192 / 55256
"""What torch's LayerNorm and GELU save of a step of 8 x 1,024 tokens on an A100 in bf16 (rasbt/LLMs-from-scratch
ch05/10_llm-training-speed README: tokens per second before and after)."""


def _replay(notes: str, **cells: str) -> Replay:
    found = replay(Run({**GPT2, **cells, "notes": notes}, 2))
    assert found.predicted_seconds and found.setup
    return found


def _seconds(notes: str, **cells: str) -> float:
    return _replay(notes, **cells).predicted_seconds or 0.0


def test_what_torchs_own_modules_save() -> None:
    saved = _seconds(OWN) - _seconds("network written by hand; torch LayerNorm and GELU")
    assert saved == pytest.approx(SAVED_SECONDS, rel=0.3)


def test_a_compiler_makes_kernels_of_them() -> None:
    assert _seconds(OWN, compile="1") == _seconds("network written by hand", compile="1")


@pytest.mark.parametrize(
    ("notes", "norm", "activation"),
    [
        (OWN, "written", "eager"),
        ("hand-written GELU; LayerNorm is torch's", "fused", "eager"),
        ("LayerNorm written out, GELU fused", "written", "gates"),
        ("layer norms are composed", "written", "gates"),
        ("no own LayerNorm", "fused", "gates"),
        ("own tokenizer; LayerNorm and GELU of torch", "fused", "gates"),
    ],
)
def test_notes_that_tell_of_them(notes: str, norm: str, activation: str) -> None:
    setup = _replay(f"network written by hand; {notes}").setup
    assert setup is not None
    assert (setup.kernels.layernorm, setup.kernels.activation) == (norm, activation)


def _norm(**options: Any) -> tuple[Any, Any]:
    setup = resolve(Job(gpus=1, dropout=False, **options))
    block = build_stages(setup)[0].layers[0][0]
    return setup, next(one for one in block.operations if one.kind == "norm")


def test_what_a_norm_of_the_authors_keeps() -> None:
    """Its input, centred and normalised, and the root of each row's variance; torch's keeps the input, means and
    reciprocal deviations."""
    setup = _replay(OWN).setup
    assert setup is not None
    block = build_stages(setup)[0].layers[0][0]
    norm = next(one for one in block.operations if one.kind == "norm")
    elements = 8 * 1024 * 768
    assert sum(one.size_bytes for one in norm.saved) == 3 * 2 * elements + 4 * 8 * 1024


def test_layer_norms_of_cohere_take_their_steps() -> None:
    """An upcast to fp32 and eight passes of it forward, where torch's kernel reads its input twice and writes once."""
    setup, composed = _norm(model="command-r-35b", framework="huggingface", gpu="h100-sxm")
    plain_setup, plain = _norm(model="gpt2", framework="huggingface", gpu="h100-sxm")
    assert (composed_norm(setup), composed_norm(plain_setup)) == ("layernorm", "")
    assert norm_cost(setup).kernels > norm_cost(plain_setup).kernels
    each = [
        [way / (one.shape[0] * one.shape[1]) for way in moved_bytes(job, one)]
        for job, one in ((setup, composed), (plain_setup, plain))
    ]
    assert each[0][0] > 5 * each[1][0] and each[0][1] > 5 * each[1][1]


def test_they_take_their_steps_whatever_the_profile_has_for_others() -> None:
    """Under software whose own norms are a library's kernels, too: ten passes forward and 34 backward in bf16."""
    setup = _replay("own LayerNorm", framework="deepspeed-2021", compile="").setup
    assert setup is not None and composed_norm(setup) == "written"
    norm = next(one for one in build_stages(setup)[0].layers[0][0].operations if one.kind == "norm")
    forward, backward = (way / (norm.shape[0] * norm.shape[1]) for way in moved_bytes(setup, norm))
    assert forward >= 10 * 2 and backward >= 34 * 2


@pytest.mark.parametrize(
    ("model", "software", "saved"),
    [
        ("llama-3-8b", {"framework": "huggingface"}, 8 / 84),
        ("llama-3-8b", {"framework": "torchtune", "compile": True}, 1 / 2.5),
        ("gpt-neox-20b", {"framework": "huggingface"}, 2 / 7),
        ("llama-3-8b", {"framework": "megatron-bridge"}, 0),
    ],
)
def test_frozen_norms_make_no_gradient_of_their_weights(model: str, software: dict[str, Any], saved: float) -> None:
    """Its product and sum of composed norms, the second kernel of others; Transformer Engine runs that regardless."""
    job: dict[str, Any] = {"model": model, "gpus": 1, "precision": "pure-bf16", "seq": 2048, "lora_rank": 16} | software
    moved = []
    for whole in (None, "norms"):
        setup = resolve(Job(**job, lora_whole=whole))
        block, _ = build_stages(setup)[0].usual_layer
        norm = next(one for one in block.operations if one.kind == "norm")
        moved.append((*moved_bytes(setup, norm), launches(setup, norm).kernels[1]))
    (forward, backward, kernels), (forward_whole, backward_whole, kernels_whole) = moved
    assert forward == forward_whole
    assert backward == pytest.approx(backward_whole * (1 - saved))
    assert (kernels < kernels_whole) == (saved > 0)
