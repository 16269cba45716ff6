"""Adapters on the projections of recurrent mixers; attention beside Mamba-2; lightning attention."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from recordings import recorded_stage
from test_saved_tensors import PRECISION
from test_search import same_somewhere

import distsim
from distsim.cli.app import run
from distsim.engine.figures import Figures
from distsim.engine.footprint.moments import moments_of
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.errors import DistsimError
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import layer_kind, network_parameters
from distsim.specs.job import Job
from distsim.specs.tuning import targets_named

ORACLES = Path(__file__).parent / "oracles"
# One step of transformers 5.23's modules (Lara's of 5.24), some wrapped by peft 0.21, on torch 2.13 fake tensors,
# recorded as tests/oracles/torch_lora.md says. Of kernels that fake tensors cannot run (the delta rule's, Mamba-2's)
# a stand-in saves what the functions of flash-linear-attention, causal-conv1d and mamba-ssm pass to
# save_for_backward.
ROWS = list(csv.DictReader((ORACLES / "torch_hybrids.csv").open()))
CONFIGS = json.loads((ORACLES / "torch_hybrids_configs.json").read_text())
# Counted on modules that peft 0.21 wrapped on the meta device; rank 8.
PEFT = json.loads((ORACLES / "peft_counts.json").read_text())


def _setup(config: dict[str, Any] | str, **options: Any) -> Setup:
    model = config if isinstance(config, str) else read_config(config).model
    return resolve(Job(model=model, gpu="h200-sxm", gpus=1, framework="huggingface", **options))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_what_torch_keeps(row: dict[str, str]) -> None:
    """A layer, all that is kept, states and the peak."""
    rank, _, targets = row["lora"].removeprefix("r=").partition(" ")
    setup = _setup(
        CONFIGS[row["model"]], seq=int(row["seq"]), micro_batch=int(row["micro_batch"]), recompute=row["recompute"],
        attention="eager" if row["attn_impl"] == "eager" else "flash", precision=PRECISION[row["dtype_scheme"]],
        lora_rank=int(rank) if rank else None, lora_targets=targets.replace("+", ",") or None,
    )  # fmt: skip
    stage = recorded_stage(setup)
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    if row["recompute"] == "none":
        kind = layer_kind(setup.model, setup.model.layers // 2)
        middle = [block for block, _ in stage.layers if block.name == kind][-1]
        assert sum(distinct_saved(middle.operations).values()) == pytest.approx(int(row["saved_layer_mid"]), rel=1e-3)
    # under full recomputation the rotary tables, which the model holds anyway, are counted and not recorded
    assert saved.total == pytest.approx(int(row["saved_total"]), rel=0.009 if row["recompute"] == "full" else 0.0025)
    assert held.parameters == pytest.approx(int(row["static_param"]), rel=5e-5)
    assert held.optimizer == pytest.approx(int(row["static_optim"]), rel=1e-4)
    if "out_proj" not in row["lora"] and "all-linear" not in row["lora"]:  # Mamba's kernels pass that one by
        assert held.gradients == pytest.approx(int(row["bwd_end_grad"]), rel=1e-4)
    if row["model"].startswith("recgemma") and row["recompute"] == "full":
        return  # its loop over tokens writes each state into a tensor of all, of which backward makes copies
    peak = max(moment.total for moment in moments_of(setup, stage, held, saved))
    assert peak == pytest.approx(int(row["peak_total"]), rel=0.015 if row["recompute"] == "none" else 0.08)


@pytest.mark.parametrize("case", PEFT["trained"], ids=lambda case: f"{case[0]}-{case[1][:40]}")
def test_trained_parameters(case: tuple[str, str, int]) -> None:
    """What peft counts as trainable, whatever modules are named."""
    config, targets, trained = case
    assert _trained(PEFT["configs"][config], targets) == trained


def _trained(config: dict[str, Any], targets: str) -> float:
    """Parameters of adapters of rank 8."""
    setup = _setup(config, seq=128, precision="pure-bf16", lora_rank=8, lora_targets=targets)
    parts = network_parameters(setup.context()).values()
    return sum(times * one.elements for parameters, times in parts for one in parameters if one.held == "adapter")


@pytest.mark.parametrize("case", PEFT["all-linear"], ids=lambda case: case[0]["model_type"])
def test_all_linear_layers(case: tuple[dict[str, Any], int]) -> None:
    """What peft's word for all linear layers but the output layer means, in every family without routed experts."""
    config, trained = case
    assert _trained(config, "all-linear") == trained


def test_words_for_products() -> None:
    assert targets_named("in_proj,q_proj") == "q,in_proj"
    assert targets_named("w1,w2") == "gate,down"
    assert "head" not in targets_named("all-linear").split(",")
    with pytest.raises(ValueError, match="did you mean in_proj_qkvz"):
        targets_named("in_proj_qkz")


@pytest.mark.parametrize(
    ("model", "targets", "words"),
    [
        ("qwen3-next-80b-a3b", "in_proj", "did you mean in_proj_ba, in_proj_qkvz"),
        ("llama-3-8b", "mixers", "no such module"),
        ("mixtral-8x7b", "shared_expert_gate", "no such module"),
        ("falcon-h1-0.5b", "all-linear", "--lora-targets q,k,v,o,in_proj,gate,up,down"),
        ("mamba-130m", "out_proj", "puts no adapter on out_proj"),
    ],
)
def test_products_that_cannot_have_one(model: str, targets: str, words: str) -> None:
    with pytest.raises(DistsimError) as found:
        _setup(model, precision="pure-bf16", lora_rank=8, lora_targets=targets)
    assert re.search(words.replace("+", r"\+"), str(found.value))


def test_frameworks_that_fuse_projections_know_them_by_one_name() -> None:
    """Megatron's in_proj of a delta rule is all four; adapters are said by the names a model has."""
    options = {"model": "qwen3-next-80b-a3b", "gpu": "h200-sxm", "gpus": 64, "ep": 8, "seq": 2048, "lora_rank": 16}
    fused = distsim.memory(**options, framework="megatron-bridge", lora_targets="in_proj,out_proj")
    named = distsim.memory(**options, framework="megatron-bridge", lora_targets="in_proj_qkvz,in_proj_ba,out_proj")
    assert fused.worst.categories["optimizer"] == named.worst.categories["optimizer"] > 0
    assert fused.to_dict()["job"]["lora_targets"] == "in_proj,out_proj"


def test_what_bitsandbytes_quantises_of_a_mixer() -> None:
    """Its projections, not the convolution's taps, decays or norms, which become fp32."""
    options = {"gpu": "h200-sxm", "gpus": 1, "seq": 512, "framework": "huggingface", "precision": "pure-bf16"}
    plain, small = (distsim.memory(model="bamba-9b", **options, lora_rank=8, lora_targets="in_proj", quantize=how)
                    for how in (None, "nf4"))  # fmt: skip
    hidden, inner, mixed, heads = 4096, 8192, 8192 + 2 * 128, 128
    mixers = 29 * (hidden * (inner + mixed + heads) + inner * hidden)
    linear = mixers + 3 * hidden * (4096 + 2 * 1024 + 4096) + 32 * 3 * hidden * 14336
    others = distsim.load_model("bamba-9b").parameters - linear
    saved = plain.worst.categories["parameters"] - small.worst.categories["parameters"]
    assert saved == pytest.approx(linear * (2 - 4.127 / 8) - others * 2, rel=1e-4)


def test_experts_of_one_tensor_stay_as_they_are() -> None:
    """Transformers 5 has no linear layers in its experts; two runs of axolotl's examples report 98.7 GiB in 8 bits and
    47 GiB with experts packed, with a loss that makes no logits."""
    options = {"gpu": "h200-sxm", "gpus": 1, "seq": 2048, "micro_batch": 2, "framework": "huggingface",
               "recompute": "full", "optimizer": "adamw-8bit", "lora_rank": 16, "lora_targets": "q,k,v,o",
               "loss": "cut"}  # fmt: skip
    kimi = distsim.memory(model="kimi-linear-48b-a3b", quantize="int8", **options)
    assert kimi.peak == pytest.approx(98.7 * 2**30, rel=0.035)
    assert any("stay in 16 bits" in note for note in kimi.setup.notes)
    qwen = distsim.memory(model="qwen3-next-80b-a3b", quantize="nf4+experts", **options)
    assert qwen.peak == pytest.approx(47 * 2**30, rel=0.035)
    assert not any("stay in 16 bits" in note for note in qwen.setup.notes)
    litgpt = {**options, "framework": "litgpt", "optimizer": "adamw", "recompute": "none", "loss": None}
    small, large = (distsim.memory(model="mixtral-8x7b", quantize=how, **litgpt) for how in ("nf4", None))
    assert small.worst.categories["parameters"] < 0.35 * large.worst.categories["parameters"]


def test_attention_beside_a_mixer_is_in_every_layer() -> None:
    model = distsim.load_model("falcon-h1-0.5b").spec
    assert model.attention_layers == model.layers == 36
    alone = model.model_copy(update={"mixer_beside": False})
    seconds = [distsim.step(model=one, gpu="h100-sxm", gpus=1, seq=16384, optimizer="sgd").seconds
               for one in (model, alone)]  # fmt: skip
    assert seconds[0] > 1.1 * seconds[1]


def test_lightning_attention_composed_and_fused() -> None:
    """Fused it keeps less, and twice the sequence costs twice the time."""
    options: dict[str, Any] = {"model": "minimax-text-01", "gpu": "b200-sxm", "gpus": 64, "ep": 32, "zero": 1}
    kept = {}
    for framework in ("huggingface", "megatron-core"):
        setup = resolve(Job(**{**options, "ep": 1, "zero": 3, "framework": framework, "seq": 4096}))
        block = next(one for one, _ in build_stages(setup)[0].layers if one.name == "moe+lightning")
        kept[framework] = sum(
            tensor.size_bytes for one in block.operations if one.name == "lightning.scan" for tensor in one.saved
        )
    assert kept["megatron-core"] == 6 * 4096 * 64 * 128 * 2
    assert kept["huggingface"] > 1.3 * kept["megatron-core"]


@pytest.mark.parametrize(("seq", "pairs"), [(128, 128**2), (256, 256**2), (600, 2 * 256**2 + 88**2)])
def test_blocks_of_lightning_attention_end_with_the_sequence(seq: int, pairs: int) -> None:
    """Products are within blocks as long as they are; at 128 tokens torch counts as many (FlopCounterMode on
    transformers 5.24's MiniMax)."""
    job = Job(model="minimax-text-01", gpu="b200-sxm", gpus=64, zero=3, framework="huggingface", seq=seq)
    block = next(one for one, _ in build_stages(resolve(job))[0].layers if one.name == "moe+lightning")
    (scan,) = [one for one in block.operations if one.name == "lightning.scan"]
    assert scan.flops_forward == pytest.approx(64 * 2 * (2 * pairs * 128 + 2 * seq * 128**2))


@pytest.mark.parametrize(
    ("family", "key", "usual"),
    [
        ("bamba", "mamba_chunk_size", 256), ("granitemoehybrid", "mamba_chunk_size", 256),
        ("falcon_h1", "mamba_chunk_size", 256), ("mamba2", "chunk_size", 256), ("nemotron_h", "chunk_size", 128),
    ],
)  # fmt: skip
def test_a_file_says_how_long_chunks_of_its_scan_are(family: str, key: str, usual: int) -> None:
    """Where it does not, they are as its class has them (transformers 5.23)."""
    file = {"model_type": family, "num_hidden_layers": 4, "hidden_size": 4096}
    if family == "nemotron_h":
        file["hybrid_override_pattern"] = "M*M-"
    for stated, chunk in (({}, usual), ({key: 64}, 64)):
        reading = read_config({**file, **stated})
        assert reading.model.mamba is not None and reading.model.mamba.chunk == chunk
        assert not reading.unused


@pytest.mark.parametrize(
    ("model", "framework", "chunk"),
    [
        ("mamba2-2.7b", "huggingface", 256), ("mamba2-2.7b", "megatron-core", 128), ("mamba2-8b", "huggingface", 128),
        ("bamba-9b", "huggingface", 256), ("falcon-h1-0.5b", "huggingface", 128),
        ("nemotron-h-8b", "megatron-core", 128),
    ],
)  # fmt: skip
def test_products_of_a_scan_are_within_chunks_of_it(model: str, framework: str, chunk: int) -> None:
    """Pairs of a chunk's tokens, states into it and out of it; Megatron's mixer has chunks of its own."""
    setup = resolve(Job(model=model, gpu="h100-sxm", framework=framework, seq=4096, micro_batch=1))
    mixer, blocks = setup.model.mamba, [one for one, _ in build_stages(setup)[0].layers]
    assert mixer is not None
    scan = next(row for one in blocks for row in one.operations if row.name == "mamba.scan")
    inner = mixer.heads * mixer.head_dim
    pairs = 4096 * chunk / 2
    assert scan.flops_forward == 2 * pairs * (mixer.groups * mixer.state + inner) + 4 * 4096 * inner * mixer.state
    states = 4096 / chunk * inner * mixer.state * 4
    assert scan.bytes_written == 4096 * inner * 2 + 2 * states
    beside = [one.size_bytes for one in scan.transient_backward if "state" in one.name]  # each in fp32 and narrowed
    assert beside == [1.5 * states] * 2


@pytest.mark.parametrize("case", [("falcon-h1-0.5b", 4, {}), ("minimax-text-01", 8, {}),
                                  ("falcon-h1-0.5b", 4, {"lora_rank": 8, "lora_targets": "in_proj,out_proj"})],
                         ids=str)  # fmt: skip
def test_arrays_of_layouts_give_the_numbers_of_one(case: tuple[str, int, dict[str, Any]]) -> None:
    model, gpus, more = case
    job = Job(model=model, gpu="h200-sxm", global_batch=gpus, seq=2048, framework="megatron-bridge", **more)
    same_somewhere(job, gpus, seed=5, most=3)


def test_minimax_has_its_own_names_for_things(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file on the Hub says which layers attend by noughts and ones."""
    switches = [0, 0, 0, 0, 0, 0, 0, 1] * 10
    config = {"model_type": "minimax_text_01", "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64,
              "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216, "num_local_experts": 32,
              "vocab_size": 200064, "attn_type_list": switches, "layernorm_mlp_alpha": 3.55, "rotary_dim": 64,
              "shared_intermediate_size": 0}  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert read_config(config).unused == ()
    assert distsim.load_model(str(file)).parameters == 456_089_655_296
    assert run(["memory", str(file), "--gpus", "512", "--ep", "32", "--seq", "1024"]) in (0, 1)
    assert "was not used" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "framework", "package"),
    [
        ("mamba2-1.3b", "huggingface", "mamba-ssm"), ("qwen3-next-80b-a3b", "huggingface", "flash-linear-attention"),
        ("llama-2-7b", "huggingface", ""), ("qwen3-next-80b-a3b", "megatron-core", ""),
    ],
)  # fmt: skip
def test_peaks_that_rest_on_another_package_say_so(model: str, framework: str, package: str) -> None:
    """Peaks of transformers' plain loops are 1.05 to 2.46 times what kernels of these packages need."""
    setup = resolve(Job(model=model, framework=framework, gpu="b300-sxm", gpus=8))
    told = [note for note in setup.notes if "loops keep" in note]
    assert len(told) == bool(package) and all(package in note for note in told)
