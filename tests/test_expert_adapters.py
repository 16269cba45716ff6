"""Adapters of routed experts: as peft 0.21 has them on transformers 5.23, and as other frameworks do."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.footprint.saved import saved_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface.reader import read_config
from distsim.layers.network import network_parameters
from distsim.specs.job import Job

TINY: dict[str, Any] = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,
    "moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1000, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "num_hidden_layers": 3, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "attention_dropout": 0.0, "norm_topk_prob": False,
}  # fmt: skip
"""A small Qwen3-MoE whose saved tensors were recorded with torch 2.13's saved_tensors_hooks."""


def _setup(model: Any, targets: str, rank: int = 8, framework: str = "huggingface") -> Setup:
    return resolve(
        Job(
            model=model, gpu="h200-sxm", gpus=1, framework=framework, precision="pure-bf16", seq=512, lora_rank=rank,
            lora_targets=targets,
        )
    )  # fmt: skip


def _trained(setup: Setup) -> float:
    parts = network_parameters(setup.context()).values()
    return sum(times * one.elements for parameters, times in parts for one in parameters if one.held == "adapter")


@pytest.mark.parametrize(
    ("model", "targets", "rank", "trained"),
    [
        ("qwen3-30b-a3b", "all-linear", 16, 996_507_648),
        ("qwen3-30b-a3b", "q,k,v,o,gate,up,down", 16, 994_836_480),
        ("mixtral-8x7b", "all-linear", 8, 179_832_832),
        ("mixtral-8x7b", "q,w1,w2,w3", 8, 174_063_616),
        ("qwen3-next-80b-a3b", "all-linear", 16, 3_443_233_536),
        ("qwen3-next-80b-a3b", "q,v,experts", 16, 2_217_050_112),
        ("deepseek-v3", "all-linear", 8, 3_822_627_328),
        ("gpt-oss-20b", "all-linear", 8, 3_981_312),
        ("gpt-oss-20b", "q,experts", 8, 89_812_992),
    ],
)
def test_trained_parameters_are_pefts(model: str, targets: str, rank: int, trained: int) -> None:
    """peft names experts of some families by their old matrices, and then no other MLP; ``experts`` are tensors."""
    assert _trained(_setup(model, targets, rank)) == trained


@pytest.mark.parametrize(
    ("targets", "saved"),
    [("q,k,v,o", 14_364_736), ("q,k,v,o,gate,up,down", 30_814_272), ("all-linear", 31_354_944)],
)
def test_what_a_layer_keeps(targets: str, saved: int) -> None:
    """The sum of weights and adapters is kept until backward, and so are the experts' inputs."""
    setup = _setup(read_config(TINY).model, targets)
    assert saved_of(setup, build_stages(setup)[0]).per_layer == pytest.approx(saved, rel=1e-3)


def test_states_of_experts_adapters_are_counted() -> None:
    options = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 1, "seq": 4096, "recompute": "full"}
    report = distsim.memory(**options, framework="huggingface", lora_rank=16, lora_targets="all-linear")
    attention = distsim.memory(**options, framework="huggingface", lora_rank=16, lora_targets="attention")
    more = 996_507_648 - 13_369_344
    for category, each in (("parameters", 4), ("gradients", 4), ("optimizer", 8)):
        grown = report.worst.categories[category] - attention.worst.categories[category]
        assert grown == pytest.approx(more * each, rel=1e-3)


def test_other_frameworks_have_one_for_each_expert_or_one_for_all() -> None:
    """Mixtral, rank 8: 32 layers of 8 experts, matrices of 4,096 by 14,336; Megatron makes gate and up one."""
    separate = 32 * 8 * 8 * 3 * (4096 + 14336)
    assert _trained(_setup("mixtral-8x7b", "mlp", framework="torchtitan")) == separate
    shared = 32 * 8 * (4096 + 2 * 14336 + 14336 + 4096)
    assert _trained(_setup("mixtral-8x7b", "mlp", framework="megatron-bridge")) == shared


def test_experts_share_a_step_with_their_adapters() -> None:
    options = {"model": "mixtral-8x7b", "gpu": "h200-sxm", "gpus": 8, "ep": 8, "seq": 2048, "lora_rank": 16}
    for framework in ("megatron-bridge", "torchtitan", "fsdp"):
        on, off = (
            distsim.step(**options, framework=framework, lora_targets=targets).seconds
            for targets in ("attention,mlp", "attention")
        )
        assert on > off


@pytest.mark.parametrize(
    ("model", "targets", "words"),
    [
        ("gpt-oss-20b", "all-linear", "88,473,600 more parameters"),
        ("deepseek-v3", "all-linear", "no adapters on the other MLPs"),
        ("mixtral-8x7b", "q,x_proj", "x_proj has no effect"),
        ("llama-7b", "q,experts", "experts has no effect"),
    ],
)
def test_targets_without_effect_are_told(model: str, targets: str, words: str) -> None:
    assert any(words in note for note in _setup(model, targets).notes)


@pytest.mark.parametrize(("model", "targets"), [("qwen3-30b-a3b", "all-linear"), ("llama-7b", "all-linear")])
def test_targets_with_effect_are_not(model: str, targets: str) -> None:
    assert not [note for note in _setup(model, targets).notes if "lora" in note or "adapters" in note]


def test_what_peft_refuses() -> None:
    with pytest.raises(DistsimError, match="gate and up of qwen3-30b-a3b's experts as one tensor"):
        _setup("qwen3-30b-a3b", "q,gate")
    with pytest.raises(DistsimError, match="inputs cannot be dropped out"):
        distsim.memory("qwen3-30b-a3b", framework="huggingface", lora_rank=8, lora_targets="mlp", lora_dropout=0.1)


@pytest.mark.parametrize("command", ["memory", "comm", "step", "plan"])
def test_every_command_tells_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--tokens", "1B"] if command == "plan" else ["--json"]
    run([command, "gpt-oss-20b", "--gpu", "h200-sxm", "--gpus", "8", "--framework", "huggingface", "--seq", "512",
         "--lora-rank", "8", "--lora-targets", "all-linear", *more])  # fmt: skip
    out = capsys.readouterr()
    assert "routed experts have no adapters" in " ".join((out.out + out.err).split())


@pytest.mark.parametrize(("sequence_parallel", "share"), [(True, 8), (False, 1)])
def test_what_a_scattered_product_adds_is_scattered_too(sequence_parallel: bool, share: int) -> None:
    """Behind row-parallel products an adapter has its output scattered over the sequence, then scales and adds it."""
    job = Job(model="llama-3-70b", gpu="h100-sxm", gpus=8, tp=8, seq=4096, lora_rank=16, framework="megatron-core",
              sequence_parallel=sequence_parallel)  # fmt: skip
    layer = build_stages(resolve(job))[0].usual_layer[0]
    added = {one.name: one.shape[0] for one in layer.operations if one.name.endswith(".lora_add")}
    assert added["attention.projection.lora_add"] == added["mlp.down.lora_add"] == 4096 * 8192 / share
    assert added["attention.qkv.lora_add"] == 4096 * (8192 + 2 * 1024) / 8


def test_adapters_of_a_sharded_layer_cost_less_than_training_it() -> None:
    job = {"gpu": "h100-sxm", "gpus": 8, "tp": 8, "global_batch": 32, "seq": 4096, "micro_batch": 8}
    assert distsim.step("llama-3-70b", **job, lora_rank=16).seconds < distsim.step("llama-3-70b", **job).seconds
