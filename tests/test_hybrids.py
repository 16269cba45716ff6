"""Hybrids of Mamba-2, attention and MLP or experts, one mixer per layer (Nemotron-H)."""

from __future__ import annotations

from typing import Any

import pytest
from test_search import same_somewhere

import distsim
from distsim.engine.saved import saved_of
from distsim.engine.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface.reader import read_config
from distsim.layers.network import count_parameters
from distsim.specs.job import Job
from distsim.specs.model import Model

# Parameters counted on modules of transformers 5.23, instantiated with the presets' shapes.
COUNTED = {
    "nemotron-3-nano-30b-a3b": 31_577_937_344,
    "nemotron-3-super-120b-a12b": 120_668_687_360,
    "nemotron-h-56b": 56_324_350_464,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "nemotron-3-nano-30b-a3b": {
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "hidden_size": 2688,
        "num_hidden_layers": 52, "num_key_value_heads": 2, "mamba_num_heads": 64, "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "num_experts_per_tok": 6,
    },
    "nemotron-3-super-120b-a12b": {
        "hidden_size": 4096, "layers_block_type": (["mamba", "moe"] * 5 + ["attention"]) * 8, "num_key_value_heads": 2,
        "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376, "n_routed_experts": 512,
        "num_experts_per_tok": 22, "moe_latent_size": 1024,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_hugging_face_configurations(name: str) -> None:
    """What a file leaves out is as transformers has it; letters and words say the same."""
    found = read_config({"model_type": "nemotron_h", **CONFIGS[name]}).model
    assert count_parameters(found) == COUNTED[name]
    with pytest.raises(DistsimError, match="num_hidden_layers says 50"):
        read_config({"model_type": "nemotron_h", **CONFIGS[name], "num_hidden_layers": 50})


# TFLOP/s and tokens/s per GPU as Megatron-Bridge's performance summary prints them at 8,192 tokens, causal attention
# halved.
PRINTED = {"nemotron-3-nano-30b-a3b": (905e12, 40_960), "nemotron-3-super-120b-a12b": (831e12, 9_856)}


@pytest.mark.parametrize("name", COUNTED)
def test_exact_counts(name: str) -> None:
    assert distsim.load_model(name).parameters == COUNTED[name]


@pytest.mark.parametrize("name", PRINTED)
def test_flops_of_a_token(name: str) -> None:
    """Only layers with attention count for it; experts' latent width counts."""
    report = distsim.step(model=name, gpu="gb200", gpus=64, seq=8192, ep=8, micro_batch=1, framework="megatron-core")
    mine = report.model_flops_per_second_per_gpu * 64 / report.tokens_per_second
    rate, tokens = PRINTED[name]
    assert mine == pytest.approx(rate / tokens, rel=0.12)


def test_a_mixer_keeps_what_the_fused_scan_keeps() -> None:
    """By hand for Nemotron 3 Nano, bf16: norm's input and output, the projection, the scan's output, the gated norm's
    input and output; statistics are the framework's own choice."""
    job = Job(model="nemotron-3-nano-30b-a3b", gpu="h100-sxm", gpus=8, seq=1024, framework="megatron-core")
    from distsim.engine.resolve import resolve

    setup = resolve(job)
    block = next(block for block, _ in build_stages(setup)[0].layers if block.name == "mamba")
    kept = {tensor.name: tensor.size_bytes for one in block.operations for tensor in one.saved}
    inner, wide = 64 * 64, 2 * 64 * 64 + 2 * 8 * 128 + 64
    plain = sum(size for name, size in kept.items() if not name.endswith("statistics"))
    assert plain == 1024 * 2 * (2 * 2688 + wide + 3 * inner)
    assert saved_of(setup, build_stages(setup)[0]).total > 0


SEARCHED = [
    ("nemotron-3-nano-30b-a3b", 8, {}),
    ("nemotron-h-56b", 32, {"precision": "fp8"}),
    ("nemotron-3-super-120b-a12b", 64, {"lora_rank": 16}),
]


@pytest.mark.parametrize("case", SEARCHED, ids=lambda case: case[0])
def test_arrays_of_layouts_give_the_numbers_of_one(case: tuple[str, int, dict[str, Any]]) -> None:
    model, gpus, more = case
    job = Job(model=model, gpu="h100-sxm", global_batch=gpus, seq=2048, framework="megatron-bridge", **more)
    same_somewhere(job, gpus, seed=3)


def test_what_a_hybrid_cannot_be() -> None:
    job = Job(model="nemotron-3-nano-30b-a3b", gpu="h100-sxm", gpus=16, tp=16)
    with pytest.raises(DistsimError, match="groups of"):
        distsim.memory(job)
    nano = distsim.load_model("nemotron-3-nano-30b-a3b").spec
    with pytest.raises(DistsimError, match="pattern must have one of"):
        Model.read({**nano.model_dump(), "pattern": "ME"})
    with pytest.raises(DistsimError, match="do not go together"):
        Model.read({**nano.model_dump(), "mamba": None})
