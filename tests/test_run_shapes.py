"""Blank cells of a measured run's shape: heads, the width of the MLP, experts of a token."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.interop.runs.models import model_of
from distsim.interop.runs.named_presets import preset_named
from distsim.layers.network import count_parameters

BASE = {
    "family": "llama", "layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "seq_len": 4096, "gpu": "h100-sxm",
    "n_gpus": 8, "tp": 2, "pp": 1, "dp": 4, "micro_batch": 1, "global_batch": 16, "precision": "bf16",
    "recompute": "none", "framework": "megatron-core", "step_time_s": 5,
}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**BASE, **cells}.items()}, 2)


def _replay(**cells: Any) -> Replay:
    return replay(_run(**cells))


LLAMA_3 = {"kv_heads": 8, "vocab": 128_256}


@pytest.mark.parametrize(
    ("cells", "width"),
    [
        ({}, 11_008),
        ({"n_params_b": "6.74"}, 11_008),
        ({"n_params_b": 7}, 11_008),
        ({"n_params_b": "8B", **LLAMA_3}, 14_336),
        ({"hidden": 8192, "heads": 64, "layers": 80, "kv_heads": 8, "n_params_b": 70}, 28_672),
        ({"hidden": 5120, "heads": 40, "layers": 40, "n_params_b": 13}, 13_824),
        ({"hidden": 3584, "heads": 28, "layers": 28, "kv_heads": 4, "vocab": 152_064, "n_params_b": 7.62}, 18_944),
        ({"n_params_b": 700}, 11_008),
        ({"n_params_b": 0.1}, 11_008),
        ({"family": "gpt"}, 16_384),
        ({"ffn_hidden": 10_000, "n_params_b": 7}, 10_000),
    ],
    ids=str,
)
def test_a_blank_width_of_the_mlp(cells: dict[str, Any], width: int) -> None:
    """Published shapes: Llama 2 7B, 13B and 70B, Llama 3 8B, Qwen2.5 7B. All had been four times ``hidden``."""
    assert model_of(_run(**cells)).ffn == width


def test_what_a_blank_width_was_taken_for_is_told() -> None:
    assert _replay().assumed == "ffn_hidden is blank: assumed 11,008"
    assert _replay(n_params_b=8, **LLAMA_3).assumed == "ffn_hidden is blank: assumed 14,336 from n_params_b"
    assert not _replay(ffn_hidden=11_008).assumed and not _replay(family="gpt").assumed
    assert _replay(**dict.fromkeys(("family", "layers", "hidden", "heads"), ""), model="llama-2-7b").assumed == ""


def test_blank_heads_are_as_wide_as_usual() -> None:
    assert model_of(_run(heads="", hidden=8192)).heads == 64
    assert model_of(_run(heads="", hidden=1024, family="gpt")).heads == 16
    assert model_of(_run(heads="", head_dim=256)).heads == 16
    assert "heads is blank: assumed 32" in _replay(heads="", ffn_hidden=11_008).assumed
    assert _replay(heads="", hidden=4100, tp=8, dp=1).reason == "heads is blank"
    assert model_of(_run(heads="", hidden=4224)).heads == 32  # of 132, as 33 are odd
    assert model_of(_run(heads="", hidden=8192, kv_heads=128, head_dim="")).heads == 128  # 64 would have twice as many


BIGSCIENCE = {"family": "gpt", "hidden": 14_400, "heads": "", "layers": "", "vocab": 250_880, "tp": 8, "n_gpus": 384,
              "dp": "", "tied_embeddings": 1, "global_batch": 2048, "step_time_s": "",
              "framework": "megatron-deepspeed"}  # fmt: skip


@pytest.mark.parametrize(
    ("size", "stages", "layers"),
    [("200B", 8, 80), ("194B", 6, 78), ("191B", 7, 77), ("205B", 9, 81), ("195B", 11, 77), ("183B", 12, 72)],
)
def test_blank_layers_are_counted(size: str, stages: int, layers: int) -> None:
    """BigScience fitted layers to stages (bigscience tr11-176B-ml/chronicles-prequel.md); the printed rates times
    seconds stand to each other as these layers do. Its heads of 150 are as many as GPT-3's."""
    row = {**BIGSCIENCE, "model": f"GPT {size}", "pp": stages, "n_gpus": 8 * stages}
    model = model_of(_run(**row))
    assert (model.layers, model.heads) == (layers, 96)
    assert f"layers is blank: assumed {layers} from {size} parameters" in _replay(**row).assumed


@pytest.mark.parametrize(
    "cells", [{"model": "GPT"}, {"model": "GPT 1B"}, {"hidden": "", "model": "GPT 200B"}, {"n_experts": 8}], ids=str
)
def test_layers_that_nothing_tells_are_missing(cells: dict[str, Any]) -> None:
    assert "layers" in _replay(**{**BIGSCIENCE, "model": "GPT 8x22B", "pp": 8, **cells}).reason


@pytest.mark.parametrize(
    ("family", "chosen"),
    [("mixtral", 2), ("grok", 2), ("qwen3_moe", 8), ("deepseek-v3", 8), ("llama4", 1), ("moe-gpt", 2)],
)
def test_a_blank_top_k_is_the_familys(family: str, chosen: int) -> None:
    """It had been 1, and nothing said so."""
    cells = {"family": family, "n_experts": 16, "ffn_hidden": 4096, "ep": 4}
    experts = setup_of(_run(**cells)).model.experts
    assert experts is not None and experts.per_token == chosen
    assert f"top_k is blank: assumed {chosen}" in _replay(**cells).assumed
    assert "top_k" not in _replay(**cells, top_k=2).assumed


def test_a_family_goes_by_its_texts_name_where_frameworks_do() -> None:
    shape = {"model": "?", "family": "llama4", "layers": 48, "hidden": 5120, "heads": 40, "n_experts": 16, "top_k": 1,
             "moe_ffn_hidden": 8192, "framework": "huggingface", "gpu": "h100-sxm", "n_gpus": 1, "zero_stage": 0,
             "tp": 1, "pp": 1, "dp": 1}  # fmt: skip
    assert setup_of(_run(**shape)).kernels.expert_tokens == "all"
    assert model_of(_run(**{**shape, "family": "qwen3-moe"})).family == "qwen3_moe"


def test_rebuilt_experts_are_not_the_familys() -> None:
    assert "rebuilt as linear layers" in _replay(model="Llama-4-Scout-17B-16E-Linearized-bnb-nf4-bf16").reason


def test_cells_that_make_no_model_are_told_by_their_names() -> None:
    """What stood there was "model.str: Input should be a valid string"."""
    found = _replay(model="nemotron-3-nano-30b-a3b", layers=26, hidden=2688, heads="", vocab="").reason
    assert found == "layers 26 is not nemotron-3-nano-30b-a3b's 52, whose layers are of several kinds"
    heads = _replay(model="mixtral-8x7b", heads=31, ffn_hidden=14336).reason
    assert heads.endswith(
        "heads 31, ffn_hidden 14,336 do not make a valid mixtral-8x7b: kv_heads 8 does not divide heads 31"
    )


@pytest.mark.parametrize("notes", ["latent MoE of size 1024 (experts work in 1024)", "moe_latent_size=1024"])
def test_experts_behind_a_projection_are_as_wide_as_notes_say(notes: str) -> None:
    """Three matrices of each expert are narrower, and two of a layer lead there and back."""
    cells = {"family": "deepseek", "n_experts": 64, "top_k": 4, "moe_ffn_hidden": 1536, "kv_heads": 32}
    plain, latent = (model_of(_run(**cells, notes=words)) for words in ("mock data", notes))
    saved = 64 * 3 * 1536 * (4096 - 1024) - 2 * 4096 * 1024
    assert count_parameters(plain) - count_parameters(latent) == 32 * saved


@pytest.mark.parametrize(
    ("family", "notes", "told"),
    [
        ("llama", "RMSNorm peri-LN, QK norm before RoPE", {"qk_norm": "head", "norms_per_layer": 4}),
        ("llama", "no QK norm; sandwich norms are off", {"qk_norm": "none", "norms_per_layer": 2}),
        ("llama", "GatedNorm of rank 128, a gate on each head", {"norm_gate_rank": 128, "attention_gate": "head"}),
        ("llama", "no gate on each head", {"norm_gate_rank": None, "attention_gate": False}),
        ("gpt", "rotary + QK-norm, relu^2 MLP", {"positions": "rotary", "qk_norm": "head", "activation": "relu2"}),
        ("gpt", "RMSNorm in plain torch, GELU MLP, learned positions", {"norm": "rmsnorm", "positions": "learned"}),
        ("gpt", "RMSNorm replaces LayerNorm in some layers; no RoPE", {"norm": "layernorm", "positions": "learned"}),
    ],
)
def test_layers_are_as_notes_say(family: str, notes: str, told: dict[str, Any]) -> None:
    model = model_of(_run(family=family, notes=notes))
    assert {name: getattr(model, name) for name in told} == told


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("DeepSeek-V3 of 16 layers", "deepseek-v3"), ("Qwen2.5-7B cut to 4 layers", "qwen2.5-7b"),
        ("llama-3-8b, 6 layers", "llama-3-8b"), ("Llama-2-7B with 1 layer", "llama-2-7b"),
        ("llama-3-70b proxy 4 layers", "llama-3-70b"), ("GPT of 4096 layers", ""),
    ],
)  # fmt: skip
def test_names_that_tell_a_number_of_layers(name: str, preset: str) -> None:
    found = preset_named(name)
    assert (found.name if found else "") == preset
