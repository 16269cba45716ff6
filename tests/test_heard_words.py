"""Words of cells and notes that no shipped run has and that people write all the same: each is heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distsim.engine.evidence import replay
from distsim.interop.runs import (
    MissingCell,
    Run,
    attention,
    expert_kernels,
    fusions,
    loss_notes,
    overlap_notes,
    precision_notes,
    software_notes,
)
from distsim.interop.runs.columns import column_of, in_units
from distsim.interop.runs.dropout_notes import drops_nothing
from distsim.interop.runs.evaluation import timed_by_blocks
from distsim.interop.runs.families import traits_of
from distsim.interop.runs.numbers import number_in
from distsim.interop.runs.offloads import offloaded
from distsim.interop.runs.optimizers import told_clipping
from distsim.interop.runs.pipeline_notes import pipeline_options
from distsim.interop.runs.precision_names import precision_like
from distsim.interop.runs.recompute import said_by
from distsim.interop.runs.recompute_notes import denies_recomputation, told_modules, told_together
from distsim.interop.runs.remat import unrolls_layers
from distsim.interop.runs.sharding import reduces_in_place, reduces_once, zeropp_parts
from distsim.interop.runs.software_names import nearest_profile
from distsim.interop.runs.tuning import assumed_kind

Said = Callable[[Run], Any]


def _run(notes: str = "", **cells: str) -> Run:
    return Run({"id": "a", "notes": notes, **cells}, 2)


@pytest.mark.parametrize(
    ("says", "notes", "want"),
    [
        (software_notes.compiled, "compiled with Lightning-Thunder", True),
        (software_notes.compiled, "torch.compile was enabled", True),
        (software_notes.own_loop, "a hand-written training loop", True),
        (precision_notes.gradients_of, "gradients reduced in fp32", "fp32"),
        (precision_notes.gradients_of, "bf16 reduce-scatter of gradients", "bf16"),
        (precision_notes.keeps_16_bit_states, "optimizer states are in bfloat16", True),
        (precision_notes.narrow_head, "mxfp8 output layer", True),
        (precision_notes.torchao_recipe, "float8 through torchao", "torchao-tensorwise"),
        (precision_notes.autocasts_to_half, "with a GradScaler", True),
        (precision_notes.casts_wide_weights, "float32 parameters with bf16 autocast", True),
        (overlap_notes.exchanges_apart, "overlap_comm: false", True),
        (overlap_notes.exchanges_apart, "overlaps were all off", True),
        (overlap_notes.exchanges_apart, "gradient all-reduce not overlapped", True),
        (overlap_notes.gathers_apart, "no overlap_param_gather", True),
        (overlap_notes.overlaps_experts, "1F1B overlap", True),
        (overlap_notes.overlaps_experts, "A2A_OVERLAP=0", False),
        (overlap_notes.overlaps_experts, "no overlap of communication", False),
        (overlap_notes.tensor_parallel_apart, "tensor-parallel comm overlap is off", True),
        (fusions.composes_activations, "without bias_activation_fusion", True),
        (fusions.composes_loss, "no cross entropy fusion", True),
        (fusions.composes_rotation, "rope_fusion is false", True),
        (expert_kernels.composes_routers, "without router fusion", True),
        (expert_kernels.groups_experts, "ScatterMoE", True),
        (expert_kernels.loops_experts, "for-loop over experts", True),
        (expert_kernels.loops_experts, "experts as a Python loop", True),
        (expert_kernels.fits_tiles, "use_tokamax_gmm=true", True),
        (attention.reads_chosen_keys, "FlexAttention", True),
        (attention.reads_chosen_keys, "a batched DSA kernel", True),
        (attention.kernel_said, "torch picks flash attention-2", "flash-2"),
        (attention.masks_densely, "a dense causal mask", True),
        (loss_notes.predicted_share, "only masked positions", 0.15),
        (loss_notes.predicted_share, "dense_seq_output = off", 1.0),
        (loss_notes.loss_chunks, "loss in sixteen chunks", 16),
        (drops_nothing, "dropout probability of 0.0", True),
        (drops_nothing, "without dropout", True),
        (timed_by_blocks, "from the log's block_start to block_stop", True),
        (timed_by_blocks, "block times, evaluation excluded", False),
        (told_clipping, "gradients are not clipped", False),
        (told_clipping, "clip_grad_norm 1.0", True),
        (unrolls_layers, "scan_layers=0", True),
        (reduces_once, "reduce-scatter after every micro-batch", False),
        (reduces_once, "accumulates gradients without synchronisation", True),
        (reduces_in_place, "own data parallelism: one all-reduce a parameter", True),
        (reduces_in_place, "DDP by hand", True),
        (reduces_in_place, "own DDP with overlapped buckets", False),
        (reduces_in_place, "own data parallelism: one flat all-reduce of all gradients", False),
        (reduces_in_place, "DDP over PCIe", False),
    ],
)  # fmt: skip
def test_notes(says: Said, notes: str, want: object) -> None:
    assert says(_run(notes)) == want


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("FlashAttention training", "flash-attn"), ("NeuronX NeMo Megatron", "neuronx-nemo"),
        ("optimum-habana", "habana"), ("Gaudi PyTorch bridge", "habana"), ("neuronx-distributed", "neuronx"),
        ("Optimum Neuron", "neuronx"), ("mcore 0.9", "megatron-core"), ("Pai-Megatron-Patch", "megatron-lm"),
        ("OneFlow", "megatron-lm"), ("InternLM", "internevo"), ("Praxis", "paxml"), ("Haiku", "maxtext"),
        ("scalax", "maxtext"), ("Horovod", "torch-ddp"), ("Apex", "torch-ddp"), ("fairscale", "fsdp"),
        ("veScale", "fsdp"), ("open_lm", "fsdp"), ("LLaMA-Factory 0.9", "huggingface"), ("TRL 0.12", "huggingface"),
        ("optimum", "huggingface"), ("foundation model stack", "fms-fsdp"),
    ],
)  # fmt: skip
def test_names_of_software(name: str, profile: str) -> None:
    assert nearest_profile(name, split=False) == profile


@pytest.mark.parametrize(
    ("cell", "recipe"),
    [("half", "fp16"), ("float16", "fp16"), ("e4m3", "fp8"), ("e5m2 gradients", "fp8"), ("single", "fp32"),
     ("tensorfloat-32", "tf32"), ("bfloat16 w4a16", None), ("awq", None), ("w/o-fp8, bf16", "bf16")],
)  # fmt: skip
def test_formats(cell: str, recipe: str | None) -> None:
    assert precision_like(cell) == recipe


@pytest.mark.parametrize(
    ("schedule", "notes"),
    [("zb-h2", "ZB-H2"), ("v-min", "V-Min schedule"), ("v-half", "V-Half schedule"), ("gpipe", "GPipe")],
)
def test_schedules(schedule: str, notes: str) -> None:
    assert pipeline_options(_run(notes, pp="4")) == {"schedule": schedule}
    assert pipeline_options(_run(notes)) == {}


@pytest.mark.parametrize("name", ["tp", "pp", "vpp", "cp", "ep", "etp", "dp"])
def test_degrees_by_their_own_names(name: str) -> None:
    assert {number_in(name, text) for text in (f"{name.upper()}4", f"{name}=4", "4-way", "4x")} == {4.0}


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("grad_accum", "4 micro-batches", 4), ("grad_accum", "16 steps", 16), ("decoder_seq", "128 tokens", 128),
        ("cp", "4 (ulysses)", 4), ("cp", "8 ring", 8), ("pp", "4 pipeline stages", 4), ("layers", "32 layers", 32),
        ("gpus_per_node", "4 GCDs", 4), ("n_gpus", "64 neuron-cores", 64), ("n_gpus", "4 nodes x 8 HPUs", 32),
        ("gpu_memory", "80 GB", 80), ("gpu_power", "700 watts", 700), ("n_params_b", "7 billion", 7),
        ("samples_per_s", "12 images/sec", 12), ("hfu_pct", "45 per cent", 45), ("mfu_pct", "45% MFU", 45),
        ("step_time_s", "250 milliseconds", 0.25), ("step_time_s", "3 s per iteration", 3),
        ("tokens_per_s_per_gpu", "900 tokens/device/s", 900), ("mem_peak_gb_per_gpu", "maximum 70 GB per rank", 70),
        ("mem_peak_gb_per_gpu", "70 GiB out of 80 GiB", 70), ("lora_rank", "r=8", 8), ("micro_batch", "BS 4", 4),
        ("step_time_s", "3 s (backward alone)", None), ("tokens_per_s_per_gpu", "900 (aggregate)", None),
        ("samples_per_s", "9 (per core)", None), ("global_batch", "4M", None), ("step_time_s", "5m", None),
        ("compile", "dynamo", 1), ("compile", "without inductor", 0), ("zero_stage", "z3", 3),
        ("zero_stage", "2 (optimizer and gradients)", 2),
    ],
)  # fmt: skip
def test_numbers(name: str, text: str, number: float | None) -> None:
    assert number_in(name, text) == (number if number is None else pytest.approx(number))


def test_a_share_below_one_that_is_told_in_per_cent_stands() -> None:
    heading = column_of("mfu")
    assert heading is not None
    cells = (in_units({heading.name: text}, {"mfu": heading})[heading.name] for text in ("0.5", "0.5%", "0.5 per cent"))
    assert [number_in(heading.name, cell) for cell in cells] == [50, 0.5, 0.5]


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("3 of the 8 layers", {"recompute": "full", "recompute_layers": 3}), ("core_attn + offloading", None),
        ("full (no remarks)", {"recompute": "full"}),
        ("on 2-of-8 blocks", {"recompute": "full", "recompute_layers": 2}),
    ],
)  # fmt: skip
def test_recomputation(cell: str, options: dict[str, Any] | None) -> None:
    said = said_by(cell, 8)
    assert said is not None
    assert said.options == (options or {"recompute": "selective"})
    assert ("copies to the host ignored" in said.assumed) == (options is None)


@pytest.mark.parametrize("cell", ["full (except the last)", "full (half)", "full (50%)", "full (2 stages)"])
def test_remarks_that_tell_of_a_part(cell: str) -> None:
    assert said_by(cell, 8) is None


def test_notes_of_recomputation() -> None:
    assert denies_recomputation("activation checkpointing was disabled")
    assert denies_recomputation("not using recomputation")
    assert told_modules("recomputing of core_attn and mla_up_proj") == "core_attn,mla_up_proj"
    assert told_together("4 layers in each checkpoint") == {"recompute_group": 4}


def test_offload_that_notes_tell() -> None:
    assert offloaded(_run("optimizer states are offloaded to the host")) == "optimizer"
    assert offloaded(_run("optimizer states are offloaded to the host", offload="none")) is None


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("zero++", "qwz,hpz,qgz"), ("quantized_weights", "qwz"), ("qgz, hpz_partition_size=8", "hpz,qgz")],
)
def test_parts_of_zeropp(kind: str, parts: str) -> None:
    assert zeropp_parts(_run(fsdp_kind=kind)) == parts


def test_layers_of_their_own_kind_are_refused() -> None:
    with pytest.raises(MissingCell, match="its own kind of layers"):
        traits_of("deepseek-v4", "DeepSeek-V4-Mini")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("continued training", ""), ("rejection sampling", ""), ("projector", ""), ("galore", "modelled as full"),
     ("flora", "modelled as full"), ("longlora", "modelled as LoRA"), ("surprise", "not understood")],
)  # fmt: skip
def test_kinds_of_fine_tuning(kind: str, words: str) -> None:
    told = assumed_kind(_run(finetune_kind=kind), decomposed=False)
    assert words in told and bool(told) == bool(words)


@pytest.mark.parametrize("kind", ["dpo", "reward model", "distillation", "badam", "simpo", "rlvr", "gkd", "simcse"])
def test_kinds_that_are_refused_need_no_words_for_what_trains(kind: str) -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "2048", "micro_batch": "1",
             "framework": "huggingface", "step_time_s": "1", "finetune_kind": kind}  # fmt: skip
    assert "not modelled" in replay(_run(**cells)).reason
