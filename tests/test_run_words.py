"""Words of measured runs: families, frameworks, precisions and recomputation that no preset is named after."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.engine.memory import memory_of
from distsim.engine.runs.profile import assumed_profile
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import MissingCell, Run
from distsim.interop.runs.families import family_in, known_family, traits_of, usual_vocab
from distsim.interop.runs.patches import patches_of
from distsim.interop.runs.recompute import said_by
from distsim.layers.network import count_parameters

BASE = {
    "source": "made up", "family": "llama", "layers": 32, "hidden": 4096, "heads": 32, "ffn_hidden": 11008,
    "vocab": 32000, "seq_len": 4096, "gpu": "h100-sxm", "n_gpus": 8, "tp": 1, "pp": 1, "dp": 8, "micro_batch": 1,
    "global_batch": 16, "precision": "bf16", "recompute": "none", "framework": "megatron-core", "step_time_s": 5,
    "year": 2025,
}  # fmt: skip
BASE_SHAPE = ("family", "layers", "hidden", "heads", "ffn_hidden", "vocab")
BERT = {
    "family": "bert", "layers": 24, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "vocab": 30522, "seq_len": 512,
}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**BASE, **cells}.items()}, 2)


def _replay(**cells: Any) -> Replay:
    return replay(_run(**cells))


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "esm", "esm2", "ESM-2", "megatron-bert", "geneformer", "amplify", "esm2nv"]
)
def test_encoders_are_replayed(family: str) -> None:
    found = _replay(**{**BERT, "family": family})
    assert not found.reason and not found.assumed
    assert found.setup is not None and not found.setup.model.causal
    assert found.predicted_seconds is not None and found.predicted_seconds > 0


def test_encoders_are_named_by_their_presets() -> None:
    for name, preset in {
        "BERT 4b without LDDL": "megatron-bert-4b", "BERT-large SQuAD fine-tune": "bert-large",
        "esm2_t33_650M_UR50D": "esm2-650m", "ESM2 3B": "esm2-3b", "facebook/esm2_t48_15B_UR50D": "esm2-15b",
    }.items():  # fmt: skip
        blank = dict.fromkeys(("layers", "hidden", "heads", "ffn_hidden", "vocab"), "")
        assert setup_of(_run(**{**blank, "model": name, "family": "bert", "seq_len": 512})).model.name == preset


def test_mlperf_means_the_large_bert() -> None:
    blank = dict.fromkeys(("layers", "hidden", "heads", "ffn_hidden", "vocab"), "")
    row = {**blank, "model": "BERT", "family": "bert", "seq_len": 512}
    assert setup_of(_run(**row, source="mlcommons/training_results")).model.name == "bert-large"
    assert "not a preset" in _replay(**row).reason


def test_fine_tuned_encoders_have_the_output_of_a_task() -> None:
    whole, task = (setup_of(_run(**BERT, finetune_kind=kind)).model for kind in ("pretrain", "full"))
    assert whole.output.predicts == "tokens" and whole.tied_embeddings
    assert task.output.predicts == "classes" and not task.tied_embeddings and not task.output.transform


def test_encoders_attended_without_flash_for_longer() -> None:
    for cells, year, kernel in ((BERT, 2023, "eager"), (BERT, 2024, "flash"), ({}, 2023, "flash"), ({}, 2022, "eager")):
        assert setup_of(_run(**{**cells, "year": year})).layout.attention == kernel


def test_masked_positions_alone_on_deepspeed() -> None:
    assert setup_of(_run(**BERT, framework="deepspeed")).kernels.predicted_share == 0.15
    assert setup_of(_run(**BERT)).kernels.predicted_share == 1


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("t5", "encoder with a decoder"), ("mt5", "encoder with a decoder"), ("ul2", "encoder with a decoder"),
        ("flan-t5", "encoder with a decoder"), ("prott5", "encoder with a decoder"),
        ("megamolbart", "encoder with a decoder"), ("encoder-decoder", "encoder with a decoder"),
        ("bart", "encoder with a decoder"), ("mamba2", "state-space"),
        ("hyena", "convolutional"), ("evo2", "convolutional"), ("stripedhyena", "convolutional"),
        ("my-hybrid", "recurrent"), ("jamba", "state-space"), ("swin", "images"), ("llava", "images"),
        ("stable-diffusion", "images"), ("clip", "images"), ("deberta-v2", "differ from BERT's"),
        ("albert", "differ from BERT's"), ("openfold", "transformer layers only"),
        ("dlrm", "transformer layers only"),
    ],
)  # fmt: skip
def test_what_is_no_decoder_is_refused_by_what_it_is(family: str, words: str) -> None:
    found = _replay(family=family)
    assert words in found.reason and repr(family) in found.reason
    assert known_family(family) is None


def test_a_vision_transformer_by_its_cells() -> None:
    """As many squares as a square image has, the rest learned tokens; the side of a square from name or notes."""
    shape = {"family": "vit", "layers": 40, "hidden": 1408, "heads": 16, "ffn_hidden": 6144, "vocab": ""}
    found = setup_of(_run(**shape, seq_len=257, notes="224 px, patch 14")).model
    preset = setup_of(_run(model="vit-giant", seq_len=257, **dict.fromkeys(BASE_SHAPE, ""))).model
    assert found.patches == preset.patches and count_parameters(found) == count_parameters(preset)
    told = {(256, "vit-g-14"): (224, 14, 0), (264, "ViT-L/14"): (224, 14, 8), (197, "ours"): (224, 16, 1),
            (577, "vit_b_16"): (384, 16, 1), (50, "vit-base-patch32-224"): (224, 32, 1)}  # fmt: skip
    for (tokens, name), expected in told.items():
        patches = patches_of(_run(model=name), tokens)
        assert tuple(patches[one] for one in ("image", "size", "learned_tokens")) == expected
    assert known_family("DeiT") == known_family("vision transformer") == "vit"
    batch = {"n_gpus": 8, "global_batch": 1024, "micro_batch": "", "framework": "fsdp", "gpu": "a100-sxm4-80gb"}
    whole = setup_of(_run(model="vit-large-patch16-224", seq_len=197, **dict.fromkeys(BASE_SHAPE, ""), **batch)).layout
    assert (whole.micro_batch, whole.micro_batches) == (128, 1)  # nobody accumulates images


def test_t5_by_the_names_of_presets() -> None:
    row = {"model": "T5-3B", "family": "t5", "layers": 24, "hidden": 1024, "heads": 32, "ffn_hidden": 16384,
           "vocab": 32128, "seq_len": 512}  # fmt: skip
    assert setup_of(_run(**row)).model.name == "t5-3b"
    assert "only presets can describe" in _replay(**{**row, "layers": 12}).reason


def test_families_that_configurations_have() -> None:
    """Falcon, GPT-J, StarCoder 2 and others are known to be what their configurations make them."""
    falcon, gptj = (setup_of(_run(family=family)).model for family in ("falcon", "GPT-J"))
    assert falcon.parallel_blocks and falcon.norms_per_layer == 1 and not falcon.gated and not falcon.mlp_bias
    assert gptj.parallel_blocks and gptj.head_bias and gptj.positions == "rotary"
    for family in ("starcoder2", "gpt_neo", "cohere", "stablelm", "xlm-roberta-xl", "distilbert", "camembert"):
        found = _replay(family=family)
        assert not found.assumed and not found.reason, family
    assert known_family("nemotron_h") is None


@pytest.mark.parametrize("family", ["qwen3.5", "Qwen3.6", "qwen3_5", ""])
def test_versions_with_a_dot(family: str) -> None:
    """Qwen3.5 and 3.6 are Qwen3_5 of transformers, three of whose four layers are gated delta networks; so is a model
    of that name without a family, where Qwen2.5 is Qwen2."""
    found = _replay(family=family, model="qwen3.5-4b", layers=32, hidden=2560, kv_heads=4, head_dim=256)
    assert found.setup is not None and "layers as" not in found.assumed
    model = found.setup.model
    assert model.recurrent == (True, True, True, False) and model.delta and model.attention_gate
    names = {"qwen2.5-7b": "qwen2", "llama-3.1-8b": "llama", "qwen3-5b": "qwen3", "gemma-2b": "gemma"}
    assert {name: family_in(name) for name in names} == names


@pytest.mark.parametrize(
    "family",
    ["falcon-h1", "falcon_h1", "nemotron-h", "bamba", "gated DeltaNet", "GDN", "samba", "blenderbot", "jetmoe"],
)
def test_families_that_cells_do_not_describe(family: str) -> None:
    """Layers that scan or look at an encoder are refused by what they are, by family or by the model's name, not taken
    as GPT's; Kimi Linear's are not Llama's."""
    assert family.lower() in _replay(family=family).reason.lower()
    assert known_family(family) is None and family_in(f"{family}-7b") == ""
    assert known_family("kimi-linear") == "kimi-linear" and known_family("kimi-k2") == "llama"


def test_a_decoder_that_nobody_knows_is_taken_as_gpt_and_that_is_said() -> None:
    assert _replay(family="zyxw").assumed == "family 'zyxw' is not known: layers assumed as GPT's"
    found = _replay(**{**BERT, "family": "biobert"})
    assert found.assumed == "family 'biobert' is not known: layers assumed as BERT's"
    assert found.setup is not None and not found.setup.model.causal
    assert _replay(family="moe-llama").assumed == "family 'moe-llama' is not known: layers assumed as Llama's"
    for family in ("llama", "gpt", "internlm2", "baichuan", "qwen2-moe", "opt", "pythia"):
        assert not _replay(family=family).assumed, family
    with pytest.raises(MissingCell, match="family is blank"):
        traits_of("", "thing")
    assert [usual_vocab(one) for one in ("esm2", "bert", "mixtral", "zyxw")] == [33, 30522, 32000, 50257]


@pytest.mark.parametrize(
    ("framework", "profile"),
    [
        ("gpt-neox", "megatron-deepspeed"), ("InternLM-train", "internevo"), ("simumax", "megatron-core"),
        ("megatron-fsdp", "megatron-core"), ("NeMo 2.0", "nemo"), ("nemo2", "nemo"),
        ("Megatron-LM (a fork)", "megatron-lm"), ("lightning", "fsdp"), ("fabric", "fsdp"),
        ("OLMo-core 3", "olmo-core"),
        ("torch", "fsdp"), ("PyTorch FSDP", "fsdp"), ("easylm", "maxtext"), ("jax", "maxtext"), ("xla", "maxtext"),
        ("mesh-tensorflow", "paxml"), ("gshard", "paxml"), ("lingvo", "paxml"), ("deepspeed-chat", "deepspeed"),
        ("PyTorch DDP 2.1", "torch-ddp"), ("accelerate 0.26", "huggingface"), ("something else", "fsdp"),
        ("transformers + TransformerEngine", "huggingface"), ("TransformerEngine JAX", "maxtext"),
        ("Transformer Engine", "megatron-core"), ("NeMo Megatron FSDP", "nemo"),
        ("NeMo AutoModel 0.2", "nemo-automodel"), ("Nemotron's Megatron", "megatron-core"),
        ("Megatron Bridge r0.2", "megatron-bridge"),
        ("IBM fms-fsdp", "fms-fsdp"), ("Megatron-LLaMA (Alibaba)", "megatron-lm"), ("MindSpeed LLM 2.0", "megatron-lm"),
        ("MindSpeed-MM", "megatron-lm"), ("Primus", "megatron-core"), ("Primus torchtitan", "torchtitan"),
        ("axolotl 0.6", "huggingface"), ("unsloth (Colab)", "unsloth"), ("litgpt 0.4", "litgpt"),
        ("MosaicML Composer 0.17", "llm-foundry"), ("llm.c (Karpathy)", "torch-compile"),
        ("alpaca trainer", "huggingface"),
        ("FSDP, as ZeRO-3", "fsdp"), ("zero bubble", "megatron-lm"), ("my ZeRO", "deepspeed"),
    ],
)  # fmt: skip
def test_nearest_framework_and_it_is_said(framework: str, profile: str) -> None:
    found = _replay(framework=framework)
    assert found.setup is not None and found.setup.framework.name == profile
    assert found.assumed.split("; ")[0] == f"framework {framework!r} has no profile: timed like {profile}"


def test_a_framework_that_is_mistyped_is_asked_about() -> None:
    """Its row was timed like plain FSDP, and its memory was twice what ran."""
    told = "framework 'torchtitn' has no profile: timed like fsdp (did you mean torchtitan?)"
    assert _replay(framework="torchtitn").assumed.split("; ")[0] == told


def test_torch_that_splits_its_model_is_like_torchtitan() -> None:
    split = {"tp": 2, "dp": 4}
    assert setup_of(_run(framework="torch", **split)).framework.name == "torchtitan"
    assert setup_of(_run(framework="something else", **split)).framework.name == "megatron-lm"


@pytest.mark.parametrize(
    ("cell", "recipe", "said"),
    [
        ("tf32", "tf32", ""), ("fp32", "fp32", ""), ("fp16-mixed", "fp16", ""), ("bf16-mixed", "bf16-fp32-grads", ""),
        ("BF16", "bf16-fp32-grads", ""), ("bf16-true", "pure-bf16", ""), ("fp8-hybrid", "fp8", ""),
        ("fp8-delayed", "fp8", ""), ("fp8-blockwise", "fp8", "timed as fp8"), ("fp8-cs", "fp8", "timed as fp8"),
        ("mxfp8-e4m3", "mxfp8", "timed as mxfp8"), ("amp", "bf16-fp32-grads", "timed as bf16"),
        ("nf4", "bf16-fp32-grads", "treated as blank"), ("posit", "bf16-fp32-grads", "treated as blank"),
    ],
)  # fmt: skip
def test_precisions_by_other_names(cell: str, recipe: str, said: str) -> None:
    found = _replay(precision=cell, step_time_s=20)  # as slow as fp32 may be
    assert found.setup is not None and found.setup.precision.name == recipe
    assert (said in found.assumed) if said else not found.assumed


@pytest.mark.parametrize(
    ("cell", "name"), [("llmfoundry", "llm-foundry"), ("MosaicML", "llm-foundry"), ("BigNLP", "nemo")]
)
def test_frameworks_by_their_other_names(cell: str, name: str) -> None:
    assert setup_of(_run(framework=cell)).framework.name == name and not assumed_profile(_run(framework=cell))


def test_mixed_precision_of_a_chip_without_bf16() -> None:
    assert setup_of(_run(precision="amp", gpu="v100-sxm2-32gb")).precision.name == "fp16"


@pytest.mark.parametrize(
    ("cell", "recompute", "layers"),
    [
        ("uniform", "full", -1), ("full:uniform:1", "full", -1), ("full:1", "full", -1), ("true", "full", -1),
        ("block:4", "full", 4), ("full-block:4", "full", 4), ("block:40", "full", -1), ("block:0", "none", 0),
        ("50%", "full", 16), ("every-2", "full", 16), ("other:every 4", "full", 8), ("0", "none", 0), ("no", "none", 0),
        ("sel", "selective", 0), ("selective", "selective", 0), ("core_attn", "selective", 0), ("mlp", "selective", 0),
        ("SAC", "selective", 0), ("op", "selective", 0), ("core attention only", "selective", 0), ("AC", "full", -1),
        ("ckpt", "full", -1), ("full recompute", "full", -1), ("activation checkpointing", "full", -1),
        ("disabled", "none", 0), ("no AC", "none", 0), ("1/2", "full", 16), ("0.5", "full", 16), (".25", "full", 8),
        ("20 layers", "full", 20), ("full (20 layers)", "full", 20), ("recompute_num_layers=10", "full", 10),
        ("recompute_num_layers=1", "full", -1), ("full (uniform)", "full", -1), ("full/uniform/1", "full", -1),
        ("uniform, 1 layer", "full", -1), ("full, 4 layers", "full", 4), ("full (all layers)", "full", -1),
        ("full activation", "full", -1), ("AC full", "full", -1), ("full + offload", "full", -1),
        ("none (default)", "none", 0), ("no gradient checkpointing", "none", 0), ("-", "none", 0),
        ("10 layers/stage", "full", 10), ("layer_norm", "selective", 0), ("unsloth", "full", -1),
        ("other:full uniform 1 layer", "full", -1), ("other:full 4 of 20 layers", "full", 6),
        ("other:block num_layers=4", "full", 4), ("other:5 layers per stage", "full", 5),
        ("selective (2)", "full", 16), ("other:selective (every 2 layers)", "full", 16),
        ("every other layer", "full", 16), ("other:selective layer", "full", 16), ("selective 4", "full", 8),
        ("nothing_saveable", "full", -1), ("other:everything_saveable", "none", 0),
    ],
)  # fmt: skip
def test_recomputation_by_other_names(cell: str, recompute: str, layers: int) -> None:
    found = setup_of(_run(recompute=cell))
    assert (found.recompute, found.layout.recompute_layers) == (recompute, layers)


def test_modules_that_are_computed_again() -> None:
    kinds = {
        "core_attn": ("core_attention",), "act": ("activation",), "norm, mlp_act": ("norm", "activation"),
        "selective modules [rmsnorm mlp_act]": ("norm", "activation"), "layernorm, mlp_act": ("activation",),
    }  # fmt: skip
    for cell, wanted in kinds.items():
        assert set(setup_of(_run(recompute=cell)).kernels.selective) == set(wanted), cell
    mlp = ("mlp.norm", "mlp.up", "mlp.activation", "mlp.down")  # the first product's module has the norm
    assert setup_of(_run(recompute="mlp")).kernels.selective == mlp
    told = _replay(recompute="selective modules [layernorm mla_up_proj core_attn]").assumed
    assert "layernorm, mla-up-proj ignored" in told  # norms of plain attention are part of the product that follows
    times = [_replay(recompute=cell).predicted_seconds or 0 for cell in ("none", "mlp", "full")]
    assert times[0] < times[1] < times[2]


def test_modules_together_are_computed_again_together() -> None:
    """Modules beside the MLP had taken its place: ``core_attn,mlp`` took less time than ``mlp``. What flash attention
    keeps is less than the projection that its checkpoint holds."""
    alone, both, norms, whole = (_replay(recompute=cell, tp=2, dp=4)
                                 for cell in ("mlp", "core_attn,mlp", "norms,mlp", "full"))  # fmt: skip
    assert alone.predicted_seconds and both.predicted_seconds and whole.predicted_seconds
    assert alone.predicted_seconds < both.predicted_seconds < whole.predicted_seconds
    assert alone.predicted_peak and both.predicted_peak and whole.predicted_peak
    assert both.predicted_peak > alone.predicted_peak > whole.predicted_peak
    assert alone.predicted_seconds < norms.predicted_seconds < 1.01 * alone.predicted_seconds
    assert not (both.assumed or norms.assumed)


def test_the_mlp_of_a_model_with_experts_is_that_of_its_dense_layers() -> None:
    mixture = {"n_experts": 8, "top_k": 2, "moe_ffn_hidden": 2048, "family": "mixtral"}
    assert {"mlp.router", "mlp.experts.up", "mlp.combine"} < {
        *setup_of(_run(**mixture, recompute="moe")).kernels.selective
    }
    assert setup_of(_run(**mixture, recompute="mlp")).recompute == "none"
    assert "mlp ignored" in _replay(**mixture, recompute="mlp").assumed
    shape = {
        **dict.fromkeys(BASE_SHAPE, ""),
        "model": "deepseek-v3",
        "framework": "megatron-bridge",
        "n_gpus": 256,
        "dp": 256,
        "global_batch": 256,
    }
    again = setup_of(_run(**shape, recompute="mlp"))
    assert again.kernels.selective == ("mlp.up", "mlp.activation", "mlp.down")
    without = setup_of(_run(**shape, recompute="none"))
    assert memory_of(again).stages[0].saved.layers < memory_of(without).stages[0].saved.layers
    assert "moe ignored" in _replay(recompute="mlp, moe").assumed


@pytest.mark.parametrize(("cell", "mask"), [("flash-2", "none"), ("flash", "none"), ("sdpa", "window"), ("", "window")])
def test_flash_attention_by_name_takes_windows_without_a_mask(cell: str, mask: str) -> None:
    """``sdpa`` is torch's choice among kernels, of which flash takes no masks."""
    found = setup_of(_run(attention=cell, framework="huggingface", model="gemma-3-4b", tp=1))
    assert found.kernels.attention_mask == mask


@pytest.mark.parametrize(
    ("cell", "moved"),
    [("no", ()), ("0", ()), ("False", ()), ("zero-offload", ("optimizer",)), ("cpu_adam", ("optimizer",)),
     ("ZeRO-Infinity", ("optimizer", "parameters")), ("cpu", ("optimizer", "parameters")),
     ("True", ("optimizer", "parameters")), ("optimizer cpu", ("optimizer",)), ("-", ()),
     ("CPU offload (FSDP2)", ("optimizer", "parameters")), ("FSDP cpu_offload", ("optimizer", "parameters")),
     ("all", ("optimizer", "parameters")), ("cpu_offloading_num_layers=2", ("activations",))],
)  # fmt: skip
def test_offloading_by_other_names(cell: str, moved: tuple[str, ...]) -> None:
    found = setup_of(_run(offload=cell, framework="deepspeed", zero_stage=3))
    assert set(found.offload) == set(moved)


@pytest.mark.parametrize("kind", ["zero3_offload", "ZeRO stage 3 + CPU offload", "full_shard auto_wrap offload"])
def test_offloading_that_the_kind_of_shards_names(kind: str) -> None:
    assert set(setup_of(_run(fsdp_kind=kind, framework="huggingface")).offload) == {"optimizer", "parameters"}


def test_what_leaves_may_be_left_open() -> None:
    assert "does not say what is offloaded" in _replay(offload="gradients").reason


def test_parameters_in_host_memory_are_shards() -> None:
    """--offload parameters needs ZeRO 3, which rows had to say too."""
    for cell in ("parameters, optimizer", "full parameter offload", "ZeRO-Infinity"):
        found = setup_of(_run(offload=cell, framework="deepspeed", zero_stage=""))
        assert found.layout.zero == 3 and "parameters" in found.offload
    assert setup_of(_run(offload="optimizer", framework="deepspeed", zero_stage="")).layout.zero < 3


@pytest.mark.parametrize(
    ("cell", "modules"),
    [("activation (core_attn, attn_proj)", ("core_attn", "attn_proj")), ("moe_act", ()),
     ("fine-grained activation", ("qkv_linear", "core_attn", "attn_proj"))],
)  # fmt: skip
def test_modules_that_leave(cell: str, modules: tuple[str, ...]) -> None:
    """Of a model without experts and latent attention, whose norms are part of the products that follow them."""
    found = setup_of(_run(offload=cell))
    assert found.offload == ("activations",) and found.kernels.offload_modules == modules
    assert ("assumed to be of all modules" in _replay(offload=cell).assumed) == cell.startswith("fine")


def test_shares_that_leave() -> None:
    assert setup_of(_run(offload="activations (30%)")).offload_share == pytest.approx(0.3)
    assert setup_of(_run(offload="cpu_offloading_num_layers=8")).offload_share == pytest.approx(0.25)
    half = setup_of(_run(offload="optimizer (50%)"))
    assert half.offload == ("optimizer",) and half.job.offload_fraction == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("cell", "preset", "told"),
    [("adamw 4bit", "adamw-4bit", False), ("adamw_torch_8bit", "adamw-8bit-torchao", False),
     ("bnb 8-bit adam", "adamw-8bit", False), ("Sophia", "sophia", False), ("SOAP", "adamw", True),
     ("SOAP", "adamw", True), ("1-bit Adam", "adamw", True), ("adamw bf16 moments", "adamw", True),
     ("AdamW (distributed optimizer)", "adamw", False), ("FooBar", "adamw", True), ("n/a", "adamw", False)],
)  # fmt: skip
def test_optimizers_by_other_names(cell: str, preset: str, told: bool) -> None:
    """What no preset describes had been AdamW, and nothing said so."""
    found = _replay(optimizer=cell)
    assert found.setup is not None and found.setup.optimizer.name == preset
    assert (f"optimizer {cell!r}: assumed adamw" in found.assumed) == told


@pytest.mark.parametrize("notes", ["no MTP", "MTP disabled", "mtp_num_layers=0", "without multi-token prediction"])
def test_notes_that_deny_a_prediction(notes: str) -> None:
    shape = {**dict.fromkeys(BASE_SHAPE, ""), "model": "deepseek-v3", "framework": "megatron-bridge", "n_gpus": 256,
             "dp": 256, "global_batch": 256}  # fmt: skip
    assert setup_of(_run(**shape)).layout.dp == 256 and setup_of(_run(**shape)).job.mtp == 1
    assert not setup_of(_run(**shape, notes=notes)).job.mtp


@pytest.mark.parametrize(
    ("notes", "layers"),
    [("one MTP layer", 1), ("carried the MTP layer and its loss", 1), ("2 MTP layers", 2), ("MTP loss on", 1),
     ("runbook of the sibling MTP runs", None), ("no MTP layer", None), ("", None)],
)  # fmt: skip
def test_notes_that_name_a_prediction(notes: str, layers: int | None) -> None:
    """Megatron-LM trains none unless it is told to; of adapters beside one nobody knows."""
    shape = {**dict.fromkeys(BASE_SHAPE, ""), "model": "qwen3-8b", "framework": "megatron-core", "n_gpus": 8, "dp": 8,
             "global_batch": 8}  # fmt: skip
    assert setup_of(_run(**shape, notes=notes)).job.mtp == layers
    assert setup_of(_run(**shape, notes=notes, finetune_kind="lora", lora_rank=8)).job.mtp is None


@pytest.mark.parametrize(
    ("notes", "pp", "held"),
    [("1 MTP layer; layout 'Ett|(tt|)*6mL'; A2A overlap", 4, (2,) * 7 + (0,)),
     ("layout Ett|(tt|)*6mL.", 2, (2,) * 7 + (0,)),  # four chunks on each of two stages
     ("layout 'Ett|(tt|)*5mL'", 4, None), ("layout 'Ett|(tt|)*6mL'", 3, None), ("layout: EtL of a unit test", 4, None),
     ("its layout is not told", 4, None)],
)  # fmt: skip
def test_placements_that_notes_tell(notes: str, pp: int, held: tuple[int, ...] | None) -> None:
    """Strings that do not place this model's layers on these stages say nothing."""
    shape = {**dict.fromkeys(BASE_SHAPE, ""), "model": "deepseek-v3", "layers": 14, "framework": "megatron-core",
             "n_gpus": 192, "pp": pp, "dp": 192 // pp, "ep": 8, "global_batch": 192}  # fmt: skip
    setup = setup_of(_run(**shape, notes=notes))
    if held is None:
        assert setup.job.stage_layers is None
    else:
        assert setup.chunk_layers == held and setup.layout.vpp == 8 // pp and setup.job.mtp == 1


def test_a_module_that_nothing_describes_does_not_hide_the_others() -> None:
    found = _replay(recompute="selective modules [mlp, mhc]", framework="megatron-core")
    assert found.setup is not None and found.setup.recompute == "selective"
    assert found.setup.kernels.selective and "mhc ignored" in found.assumed


def test_chunks_of_stages_that_were_filled_in_say_something() -> None:
    row = {**dict.fromkeys(BASE_SHAPE, ""), "model": "llama-3.1-70b", "n_gpus": 64, "tp": 4, "pp": "", "cp": 2,
           "vpp": 5, "dp": 2, "global_batch": 128, "framework": "megatron-bridge", "step_time_s": 30}  # fmt: skip
    found = _replay(**row)
    assert found.setup is not None and (found.setup.layout.pp, found.setup.layout.vpp) == (4, 5)
    assert "says nothing" not in found.assumed
    assert "vpp 5 has no effect here" in _replay(**{**row, "pp": 1, "dp": 8}).assumed


def test_what_is_offloaded_where_only_its_software_is_named_is_said() -> None:
    assert (
        "assumed to go to host memory" in _replay(offload="ZeRO-Infinity", framework="deepspeed", zero_stage=3).assumed
    )
    assert "'auto': treated as blank" in _replay(recompute="auto").assumed
    assert "read as block:10" in _replay(recompute="recompute_num_layers=10").assumed


def test_blocks_are_counted_for_each_chunk() -> None:
    said = said_by("block:2", 8, chunks=4)
    assert said is not None and said.options == {"recompute": "full"}
    said = said_by("block:1", 8, chunks=4)
    assert said is not None and said.options == {"recompute": "full", "recompute_layers": 4}


@pytest.mark.parametrize("cell", ["partial", "block", "full:4", "4", "some", "1/0"])
def test_what_leaves_recomputation_open_is_refused_with_the_choices(cell: str) -> None:
    reason = _replay(recompute=cell).reason
    assert repr(cell) in reason and "block:N" in reason and "core_attn" in reason


@pytest.mark.parametrize("cell", ["dots_saveable", "other:checkpoint_dots", "dots_with_no_batch_dims_saveable"])
def test_policies_of_jax_by_name(cell: str) -> None:
    found = setup_of(_run(framework="maxtext", recompute=cell))
    assert found.recompute == "selective" and found.kernels.kept == ("qkv", "out", "up", "down")


def test_words_that_are_not_understood_are_told() -> None:
    """``selective`` among them had been enough."""
    assert "read as selective" in _replay(recompute="other:selective + full 5 layers").assumed
    assert "treated as blank" in _replay(recompute="memory budget 0.5").assumed
    assert not _replay(recompute="other:selective").assumed
    assert not _replay(recompute="other:selective (op)", framework="torchtitan").assumed


def test_a_policy_that_nobody_knows_is_said_to_be_left_out() -> None:
    assert "'other:my_policy' is not a policy of megatron-core" in _replay(recompute="other:my_policy").assumed


@pytest.mark.parametrize(
    ("cell", "notes", "layers"),
    [("uniform:4", "", 4), ("other:full uniform 2 layers", "", 2), ("uniform", "", 1), ("full", "", 1),
     ("full", "recompute uniform with 8 layers per checkpoint", 8), ("block:4", "8 layers per checkpoint", 1),
     ("full", "recompute_num_layers=2 (full recompute, uniform)", 2), ("full", "recompute_num_layers 1, uniform", 1)],
)  # fmt: skip
def test_how_many_layers_share_a_checkpoint(cell: str, notes: str, layers: int) -> None:
    assert setup_of(_run(recompute=cell, notes=notes)).layout.recompute_group == layers
    there = _run(recompute=cell, notes=notes, framework="fsdp", zero_stage="3", tp="1", pp="1")
    assert setup_of(there).layout.recompute_group == 1
    assert ("one layer in each checkpoint" in replay(there).assumed) == (layers > 1)


@pytest.mark.parametrize(
    "cell",
    ["family", "framework", "precision", "recompute", "model", "finetune_kind", "gpu", "attention", "offload",
     "flops_kind", "mem_kind", "mem_peak_gb_per_gpu", "zero_stage", "seq_len", "vocab", "n_params_b", "mfu_pct"],
)  # fmt: skip
def test_no_word_is_too_long_or_too_odd(cell: str) -> None:
    for text in (
        "1" * 9999,
        "block:" + "9" * 5000,
        "9" * 500 + "%",
        "9" * 500 + "k",
        "8x" * 500 + "H100",
        "H100" + " x8" * 500,
        "(" * 500,
        "-" * 300,
        "[",
        "modules",
        "\\",
        "é" * 400,
        "a-" * 500,
        "\0",
    ):
        found = _replay(**{cell: text})
        assert found.reason or found.predicted_seconds


@pytest.mark.parametrize(
    "cell",
    ["naive", "standard", "standard (no flash)", "non-flash", "no flash", "math", "SDPA math", "vanilla", "none",
     "dot_product",
     "False", "without flash attention", "unfused/full-softmax (no flash)", "eager", "other:eager", "composed",
     "local"],
)  # fmt: skip
def test_attention_that_is_composed(cell: str) -> None:
    """All but ``eager`` had been flash attention, and nothing said so."""
    found = _replay(attention=cell, seq_len=1024)
    assert found.setup is not None and found.setup.layout.attention == "eager" and not found.assumed


@pytest.mark.parametrize(
    ("cell", "kernel"),
    [("flash", "own"), ("FlashAttention-2", "flash-2"), ("flash_attn v2", "flash-2"), ("fa2", "flash-2"),
     ("flash-2", "flash-2"), ("cuDNN flash", "own"), ("SDPA", "own"), ("other:sdpa", "own"), ("xformers", "own"),
     ("fused", "own"), ("TE", "own"), ("FA3", "own"), ("True", "own")],
)  # fmt: skip
def test_attention_that_is_flash(cell: str, kernel: str) -> None:
    found = _replay(attention=cell)
    assert found.setup is not None and found.setup.layout.attention == "flash" and not found.assumed
    assert found.setup.kernels.attention_kernel == kernel


def test_attention_in_other_words_is_said() -> None:
    flex, other, blank = (_replay(attention=cell) for cell in ("flex_attention", "sparkle", ""))
    assert flex.setup is not None and flex.setup.kernels.attention_kernel == "flex" and not flex.assumed
    assert other.assumed == "attention 'sparkle' is not known: treated as blank"
    assert other.predicted_seconds == blank.predicted_seconds and not _replay(attention="auto").assumed


def test_a_family_that_only_cells_tell() -> None:
    """Blank families of unknown names had been refused although cells say what the layers are."""
    plain = {"model": "open-1b", "family": ""}
    assert setup_of(_run(**plain, gated_mlp=1)).model.family == "llama"
    assert setup_of(_run(**plain, gated_mlp="", heads=32, kv_heads=8)).model.family == "llama"
    assert setup_of(_run(**plain, gated_mlp=0)).model.family == "gpt"
    assert "assumed llama from its cells" in _replay(**plain, gated_mlp=1).assumed
    assert "family is blank" in _replay(**plain, gated_mlp="", kv_heads="").reason
