"""Adapters on frozen weights: against PyTorch's own bookkeeping of peft models, and by what must hold by itself."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recordings import figured
from test_saved_tensors import PRECISION, RECOMPUTE, model
from test_search import _same as same_numbers

import distsim
from distsim.engine.jobs import resolve as resolving
from distsim.engine.jobs.models import LoadedModel
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.weights import weight_work
from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.fold import blocks
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.space import groups
from distsim.engine.layouts.variants import base_setup
from distsim.engine.steps.pass_times import model_times
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.sample_lengths import lengths_of
from distsim.interop.runs.tuning import tuning_options
from distsim.layers.network import has_backward
from distsim.specs.job import Job

with open(Path(__file__).parent / "oracles" / "torch_lora.csv", newline="") as file:
    ROWS = list(csv.DictReader(file))
WHOLE_MODULES = {"query_key_value": "q,k,v", "c_attn": "q,k,v"}
POST_NORMED = "olmo-2"
"""Its first norm follows attention, so that the first layer keeps all that the others keep."""


def setup_of(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Setup:
    spec = model(row["model"], int(row["layers"]))
    monkeypatch.setattr(resolving, "load_model", lambda _: LoadedModel(spec))
    rank, _, targets = row["lora"].removeprefix("r=").partition(" ")
    return resolve(
        Job(
            model=row["model"], gpu="h100-sxm", gpus=1, framework="huggingface", seq=int(row["seq"]),
            micro_batch=int(row["micro_batch"]), attention="eager" if row["attn_impl"] == "eager" else "flash",
            precision=PRECISION[row["dtype_scheme"]], recompute=RECOMPUTE[row["recompute"]], lora_rank=int(rank),
            lora_targets=WHOLE_MODULES.get(targets, targets.replace("+", ",")),
        )
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_what_torch_keeps(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved bytes, states and the peak are those of PyTorch."""
    saved, held, peak = figured(setup_of(row, monkeypatch))
    assert saved.per_layer == pytest.approx(int(row["saved_layer_mid"]), rel=1e-4)
    # under full recomputation the rotary tables, which the model holds anyway, are counted and not recorded
    exact = 1e-3 if row["recompute"] == "full" else 5e-5
    assert saved.total == pytest.approx(
        int(row["saved_total"]), rel=0.015 if row["model"].startswith(POST_NORMED) else exact
    )
    assert held.parameters == pytest.approx(int(row["static_param"]), rel=5e-5)
    assert held.gradients == int(row["bwd_end_grad"])
    assert held.optimizer == pytest.approx(int(row["static_optim"]), rel=1e-4)
    assert peak == pytest.approx(int(row["peak_total"]), rel=0.005 if row["model"].startswith(POST_NORMED) else 5e-5)


PLAIN: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "seq": 2048, "framework": "huggingface",
                         "precision": "pure-bf16"}  # fmt: skip


def test_frozen_weights_cost_their_bytes_and_nothing_else() -> None:
    """No gradient, no state; quantised ones by the QLoRA paper's 4.127 bits, beside which peft makes all others fp32,
    but where weights are GPTQ's."""
    full, lora = distsim.memory(**PLAIN).worst, distsim.memory(**PLAIN, lora_rank=16).worst
    trained = lora.states.dense_parameters
    assert trained == 6_815_744  # q and v of 32 layers: 16 * (4096 + 4096) + 16 * (4096 + 1024) each
    assert lora.categories["parameters"] == full.categories["parameters"] + 4 * trained
    assert lora.categories["gradients"] == 4 * trained
    small = distsim.memory(**PLAIN, lora_rank=16, quantize="nf4").worst
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    saved = lora.categories["parameters"] - small.categories["parameters"]
    others = 2 * 128256 * 4096 + (2 * 32 + 1) * 4096
    assert saved == pytest.approx(layers * (2 - 4.127 / 8) - others * 2, rel=1e-4)
    gptq = distsim.memory(**PLAIN, lora_rank=16, quantize="gptq-int4").worst
    saved = lora.categories["parameters"] - gptq.categories["parameters"]
    assert saved == pytest.approx(layers * (2 - 4.15625 / 8), rel=1e-4)


def test_experts_that_are_tensors_of_one_module_are_not_quantised() -> None:
    """bitsandbytes replaces linear layers, which transformers 5 has none of among experts. Trainers that quantise them
    are told by +experts, frameworks whose experts are linear layers do so anyway."""
    job = {**PLAIN, "model": "qwen3-30b-a3b", "lora_rank": 16}
    experts = 48 * 128 * 3 * 2048 * 768

    def held(**more: Any) -> float:
        return distsim.memory(**{**job, **more}).worst.categories["parameters"]

    assert held(quantize="nf4") - held(quantize="nf4+experts") == pytest.approx(experts * (2 - 4.127 / 8), rel=1e-4)
    assert held(quantize="gptq-int4") < held(quantize="nf4+experts")
    others = {name: held(framework="litgpt", quantize=name) for name in ("nf4", "nf4+experts")}
    assert len(set(others.values())) == 1
    notes = distsim.memory(**job, quantize="nf4").setup.notes
    assert any("experts stay in 16 bits" in note for note in notes)
    assert not any("experts" in note for note in distsim.memory(**job, quantize="nf4+experts").setup.notes)
    assert any(
        "has no effect" in note for note in distsim.memory(**PLAIN, lora_rank=8, quantize="nf4+experts").setup.notes
    )
    assert distsim.memory(**job, quantize="nf4+experts").setup.to_dict()["quantize"] == "nf4+experts"


def test_hooks_of_zero_3_count_modules_not_experts() -> None:
    """Experts in one module are fetched by one set of hooks, a list of MLPs by one for each of their two weights, which
    cost more, since no trace of the last step fetches ahead of them."""

    def hooks(modules: str) -> float:
        setup = resolve(Job.read({**PLAIN, "model": "qwen3-30b-a3b", "zero": 3}))
        kernels = setup.kernels.model_copy(update={"expert_modules": modules})
        setup = replace(setup, kernels=kernels)
        return float(weight_work(setup, build_stages(setup)[0]).hooks)

    assert hooks("each") - hooks("one") == 48 * 2 * (128 * 25 - 9)


def test_only_adapters_are_reduced_and_all_weights_gathered() -> None:
    """Gradients on the wire are the adapters'; ZeRO 3 still gathers what is frozen, quantised in its own size."""

    def sent(purpose: str, **more: Any) -> float:
        rows = distsim.comm(**PLAIN, lora_rank=16, **more).collectives
        return sum(row.bytes_per_call * row.calls for row in rows if row.purpose == purpose)

    assert sent("gradients") == 6_815_744 * 4  # peft's adapters are fp32, and so are their gradients
    whole = sent("parameters", zero=3)
    assert whole == pytest.approx(2 * 2 * 8.03e9, rel=0.15)  # forward and backward; the root unit once
    assert sent("parameters", zero=3, quantize="nf4") < 0.4 * whole


# Recorded like torch_comms.csv: torch 2.13 DistributedDataParallel around peft 0.21 models, 8 ranks, one step.
BUCKETS = {(16, "all-linear"): [1_048_576, 26_394_624, 7_749_632], (64, "q,v"): [1_212_416, 16_089_088]}


@pytest.mark.parametrize(("rank", "targets"), BUCKETS)
def test_buckets_of_torch_ddp(rank: int, targets: str) -> None:
    """Buckets fill with adapters alone, in fp32, in the order in which backward makes their gradients."""
    report = distsim.comm(
        model="qwen2-0.5b", framework="torch-ddp", gpu="h100-sxm", gpus=8, seq=16, precision="pure-bf16",
        lora_rank=rank, lora_targets=targets,
    )  # fmt: skip
    sent = [row.bytes_per_call for row in report.collectives if row.purpose == "gradients"]
    assert sent == BUCKETS[rank, targets]


def test_backward_has_no_weight_gradient() -> None:
    """Products with frozen weights take as long backward as forward; a pipeline's weight pass all but vanishes."""
    work = distsim.step(**PLAIN, lora_rank=8).work.stages[0].compute
    full = distsim.step(**PLAIN).work.stages[0].compute
    ratio = work.phases["backward"].matmul / work.phases["forward"].matmul
    assert 1.0 < ratio < 1.2 < 1.9 < full.phases["backward"].matmul / full.phases["forward"].matmul
    report = distsim.step(**PLAIN, lora_rank=8)
    assert report.model_flops_per_second_per_gpu / report.tokens_per_second * 8 == pytest.approx(
        4 * 7.505e9 + 12 * 32 * 4096 * 2048, rel=0.002
    )


def test_layers_before_all_that_trains_run_forward_alone() -> None:
    """Three delta layers of Qwen3-Next come before its first attention: of its 48 layers, 36 such, 33 keep something
    and run backward. Full recomputation makes the first one's input need a gradient; a stage that trains nothing is
    sent one."""
    job = {**PLAIN, "model": "qwen3-next-80b-a3b", "gpu": "h200-sxm", "lora_rank": 8, "lora_targets": "q,v"}
    setup = resolve(Job(**job))
    counted = [(has_backward(block), count) for block, count in build_stages(setup)[0].layers]
    assert sum(count for backward, count in counted if not backward) == 3
    again = resolve(Job(**job, recompute="full"))
    assert all(has_backward(block) for block, _ in build_stages(again)[0].layers)
    last = {**PLAIN, "framework": "megatron-bridge", "lora_rank": 8, "lora_targets": "head"}
    assert distsim.memory(**last).worst.saved.layers == 0
    assert distsim.memory(**last, pp=2, global_batch=8).stages[0].saved.layers > 0
    work = distsim.step(**last).work.stages[0].compute.phases
    assert work["backward"].attention == 0 < work["forward"].attention


def test_gradients_of_adapters_that_all_ranks_hold_are_summed() -> None:
    """Tensor parallel ranks have parts of the sequence, and all of them the product that makes latents and its adapter:
    27 layers of rank 16, from 2,048 to 512 + 64, in bf16."""
    report = distsim.comm(model="deepseek-v2-lite", gpu="h100-sxm", gpus=8, seq=2048, framework="megatron-bridge", tp=2,
                          lora_rank=16)  # fmt: skip
    sent = [row.bytes_per_call for row in report.collectives if row.purpose == "replicated gradients"]
    assert sent == [27 * 16 * (2048 + 512 + 64) * 2]


def test_whole_parts_train_beside_adapters() -> None:
    """Embedding and output layer with their states, and under peft the frozen originals besides."""
    lora, more = (distsim.memory(**PLAIN, lora_rank=16, lora_whole=whole).worst for whole in (None, "embedding,head"))
    table = 128256 * 4096
    assert more.states.dense_parameters - lora.states.dense_parameters == 2 * table
    grown = {name: more.categories[name] - lora.categories[name] for name in ("parameters", "gradients", "optimizer")}
    assert (grown["parameters"], grown["gradients"]) == (2 * table * 2, 2 * table * 2)
    assert grown["optimizer"] == pytest.approx(2 * table * 4, rel=1e-5)


TUNED = [
    ("llama-3-8b", "h100-sxm", 8, "huggingface", {"lora_targets": "all-linear", "quantize": "nf4"}),
    ("llama-70b", "h100-sxm", 16, "nemo", {"precision": "fp8"}),
    ("mixtral-8x7b", "h100-sxm", 8, "megatron-core", {"quantize": "int8", "lora_whole": "norms"}),
    ("gpt2-xl", "a100-sxm4-40gb", 8, "torch-ddp", {"lora_dropout": 0.1}),
    ("deepseek-v2-lite", "h100-sxm", 8, "fsdp", {"quantize": "nf4"}),
    ("qwen3-next-80b-a3b", "h200-sxm", 8, "huggingface", {"lora_targets": "q,v"}),
]


@pytest.mark.parametrize("case", TUNED, ids=lambda case: f"{case[0]}-{case[3]}")
def test_arrays_of_layouts_give_the_numbers_of_one(case: tuple[Any, ...]) -> None:
    """A search prices adapters as step and memory do."""
    model, gpu, gpus, framework, more = case
    job = Job(model=model, gpu=gpu, global_batch=32, seq=2048, framework=framework, lora_rank=16, **more)
    base, chance, checked = base_setup(job, gpus), random.Random(7), 0
    found = list(groups(base, gpus, 32, Bounds()))
    for group in chance.sample(found, min(5, len(found))):
        for block in chance.sample(every := list(blocks(group, Prices())), min(2, len(every))):
            checked += same_numbers(base, block, chance)
    assert checked >= min(5, len(found))


def test_a_pipeline_and_tensor_parallelism() -> None:
    """The first stage alone has a layer without backward before its adapter; ranks share adapters out."""
    job = {**PLAIN, "framework": "megatron-core", "precision": "bf16", "lora_rank": 16, "lora_targets": "all-linear"}
    whole = distsim.memory(**job).worst.states.dense_parameters
    shared = distsim.memory(**job, tp=2, pp=4)
    assert sum(stage.states.dense_parameters for stage in shared.stages) * 2 == pytest.approx(whole, rel=1e-6)
    assert len(build_stages(shared.setup)[0].layers) == 2
    assert len(build_stages(shared.setup)[1].layers) == 1
    full, lora = (model_times("llama-3-8b", 4, 8, None, seq=2048, lora_rank=rank) for rank in (None, 16))
    assert max(lora["weight_gradient"]) < 0.1 * min(lora["input_gradient"])
    assert min(full["weight_gradient"]) > 0.5 * max(full["input_gradient"][:3])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantize": "nf4"}, "without adapters"),
        ({"quantize": "nf5"}, "unknown quantization"),
        ({"lora_targets": "q,v"}, "without adapters"),
        ({"lora_rank": 5000}, "exceeds the hidden size 4096"),
        ({"lora_rank": 8, "quantize": "nf5"}, "unknown quantization"),
        ({"lora_rank": 8, "quantize": "nf4+expert"}, "is not understood"),
        ({"lora_rank": 8, "quantize": "none+experts"}, "is not understood"),
        ({"lora_rank": 8, "lora_targets": "quirk"}, "is not a choice"),
        ({"lora_rank": 8, "lora_whole": "tail"}, "is not a choice"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        distsim.memory(Job.read({**PLAIN, **options}))


def test_notes_of_measured_runs() -> None:
    """Targets, formats and lengths as tables of runs write them; means of texts cut off are below both."""
    cells = {"finetune_kind": "qlora", "notes": "base weights int4 (gptq); target modules v_proj,q_proj"}
    assert tuning_options(Run(cells, 1), {"lora_rank": 4}) == {
        "lora_rank": 4, "lora_targets": "q,v", "quantize": "gptq-int4"
    }  # fmt: skip
    usual = {"lora_rank": 4, "models": {"gemma": "all-linear,head"}}
    assert tuning_options(Run({"finetune_kind": "lora", "model": "gemma-2b"}, 1), usual) == {
        "lora_rank": 4, "lora_targets": "all-linear,head"
    }  # fmt: skip
    assert tuning_options(Run({"finetune_kind": "full"}, 1), {"lora_rank": 4}) == {}
    cells = {"finetune_kind": "qlora", "notes": "weights 4-bit; quantize_moe_experts"}
    assert tuning_options(Run(cells, 1), {})["quantize"] == "nf4+experts"
    told = {"4-bit expert stacks (nf4/64)": "nf4+experts", "experts are quantised": "nf4+experts",
            "no 4-bit experts": "nf4", "experts in bf16": "nf4"}  # fmt: skip
    found = {notes: tuning_options(Run({**cells, "notes": notes}, 1), {})["quantize"] for notes in told}
    assert found == told
    lengths = lengths_of(Run({"notes": "max_length 2048 (cap; dataset x mean 3234+-2548 tokens)"}, 1))
    assert lengths is not None
    assert (lengths.longest, lengths.mean) == (2048, 1121)


def test_torchtune_has_no_master_copy_and_tells_of_its_loss() -> None:
    """Llama 3.2 3B trained whole on one A100: 60 GiB measured with packed samples of 4,096 tokens."""
    job = {"model": "llama-3.2-3b", "gpu": "a100-sxm4-80gb", "gpus": 1, "framework": "torchtune", "seq": 4096,
           "micro_batch": 2}  # fmt: skip
    plain = distsim.memory(**job)
    assert plain.setup.precision.name == "pure-bf16"
    told = "recipes of torchtune compute it with --loss chunked"
    assert any(told in note for note in plain.to_dict()["notes"])
    chunked = distsim.memory(**job, loss="chunked")
    assert chunked.peak < plain.peak and not any(told in note for note in chunked.to_dict()["notes"])
    assert distsim.memory(**job, precision="bf16").worst.categories["optimizer"] > 2 * float(
        plain.worst.categories["optimizer"]
    )
