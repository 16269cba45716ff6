"""Samples packed into one sequence, and what adapters cost the host beside Megatron's modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import distsim
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums, stage_compute
from distsim.engine.kernels.launches import PARALLEL_LINEAR_ISSUE, PLAIN_ISSUE, launches
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.sample_lengths import DOCUMENT_TOKENS, packed_options, unpadded_tokens
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

TUNED = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "framework": "nemo", "lora_rank": 8, "seq": 4096}


def setup(**options: Any) -> Setup:
    return resolve(Job.read({**TUNED, **options}))


def rows(job: Setup) -> dict[str, Operation]:
    [(block, _), *_] = build_stages(job)[0].layers[-1:]
    return {one.name: one for one in block.operations}


def attention(job: Setup) -> float:
    phases = stage_compute(job, build_stages(job)[0]).phases
    return float(sum(phases[name].attention for name in ("forward", "backward")))


def test_a_packed_sequence_attends_like_as_many_short_ones() -> None:
    """Sixteen samples in a sequence of 4,096 cost what a micro-batch of sixteen sequences of 256 does."""
    packed, apart = setup(sample_tokens=256), setup(seq=256, micro_batch=16)
    assert attention(packed) == pytest.approx(attention(apart), rel=1e-9)
    assert attention(packed) < 0.5 * attention(setup())
    core, alone = rows(packed)["attention.core"], rows(apart)["attention.core"]
    assert core.shape == alone.shape and core.flops_forward == alone.flops_forward


def test_all_but_attention_is_as_without_packing() -> None:
    """Products, exchanges and memory are those of whole sequences."""
    job, plain = {**TUNED, "tp": 2}, distsim.memory(Job.read({**TUNED, "tp": 2}))
    assert distsim.memory(Job.read({**job, "sample_tokens": 300})).peak == plain.peak
    assert distsim.step(Job.read({**job, "sample_tokens": 300})).seconds < distsim.step(Job.read(job)).seconds
    assert distsim.step(Job.read({**job, "sample_tokens": 4096})).seconds == distsim.step(Job.read(job)).seconds


def test_context_parallel_ranks_share_a_sample() -> None:
    whole, half = (rows(setup(sample_tokens=256, cp=cp))["attention.core"] for cp in (1, 2))
    assert half.flops_forward * 2 == whole.flops_forward
    assert half.shape[2] * 2 == whole.shape[2] and half.shape[0] == whole.shape[0]


def test_a_window_wider_than_a_sample_has_no_effect() -> None:
    """Mistral's 4,096 tokens, of samples of 512."""
    packed = setup(model="mistral-7b-v0.1", seq=16384, sample_tokens=512)
    assert rows(packed)["attention.core"].shape[:4] == (32, 32, 512, 512)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample_tokens": 8192}, "more than the 4,096 tokens"),
        ({"sample_tokens": 256, "attention": "eager"}, "whole sequences"),
        ({"sample_tokens": 256, "model": "mamba-2.8b", "lora_rank": None}, "has no attention"),
        ({"sample_tokens": 256, "model": "t5-large", "seq": 512, "framework": "huggingface"}, "not covered"),
    ],
)
def test_packing_that_says_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        setup(**options)


def test_runs_that_fine_tune_in_nemo_pack_its_samples() -> None:
    """Those that pre-train do not, nor those of other software."""
    cells = {"model": "Llama-3-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "vocab": "128256",
             "ffn_hidden": "14336", "gated_mlp": "1", "gpu": "h100-sxm", "n_gpus": "8", "tp": "1", "pp": "1", "dp": "8",
             "micro_batch": "1", "global_batch": "32", "seq_len": "4096", "framework": "nemo"}  # fmt: skip
    assert setup_of(Run({**cells, "finetune_kind": "lora"}, 1)).layout.sample_tokens == 200
    assert setup_of(Run(cells, 1)).layout.sample_tokens == 0
    other = Run({**cells, "finetune_kind": "full", "framework": "torchtitan"}, 1)
    assert setup_of(other).layout.sample_tokens == 0
    assert packed_options(Run({"finetune_kind": "full", "seq_len": "128"}, 1), 200) == {}


def test_documents_that_attend_to_themselves_alone_are_read_in_notes() -> None:
    cells = {"seq_len": "8192", "framework": "torchtitan"}
    for notes in ("FA4 varlen over packed C4 documents, no CUDA graphs", "packed documents, variable-length attention"):
        assert packed_options(Run({**cells, "notes": notes}, 1), 0) == {"sample_tokens": DOCUMENT_TOKENS}
    for tokens, notes in (("8192", "SFT on packed short documents"), ("16384", "packed documents"),
                          ("32768", "short documents, attention only within each")):  # fmt: skip
        run = Run({**cells, "finetune_kind": "full", "seq_len": tokens, "notes": notes}, 1)
        assert packed_options(run, 0) == {"sample_tokens": DOCUMENT_TOKENS}
    assert packed_options(Run({"seq_len": "4310", "notes": "21.55 chats a pack"}, 1), 0) == {"sample_tokens": 200}
    for tuned in ("full", ""):  # who packs to more has longer ones
        longer = {**cells, "finetune_kind": tuned, "seq_len": "65536", "notes": "attention within documents"}
        assert packed_options(Run(longer, 1), 0) == {}
    for notes in ("chunked loss, packed C4", "no packed documents", "documents kept apart", ""):
        assert packed_options(Run({**cells, "notes": notes}, 1), 256) == {}
    assert packed_options(Run({"seq_len": "256", "notes": "packed documents"}, 1), 0) == {}


def test_adapters_cost_the_host_less_than_modules() -> None:
    """Their matrices are Megatron's own layers, what surrounds them plain torch; captured in a graph all are alike."""
    megatron, plain = setup(lora_targets="all-linear"), setup(lora_targets="all-linear", framework="fsdp")
    found = rows(megatron)
    down, added, frozen = (found[f"attention.projection{end}"] for end in (".lora_a", ".lora_add", ""))
    assert launches(megatron, down).issued == (PARALLEL_LINEAR_ISSUE, 2 * PARALLEL_LINEAR_ISSUE)
    assert launches(megatron, added).issued == (3 * PLAIN_ISSUE, 3 * PLAIN_ISSUE)
    assert launches(megatron, frozen).issued == (1, 1)
    assert launches(megatron, down).kernels == launches(plain, down).kernels == (1, 2)
    assert launches(plain, added).issued == (3, 3)
    captured = replace(megatron, kernels=megatron.kernels.model_copy(update={"graphs": "iteration"}))
    assert launches(captured, down).issued == (0, 0)


@pytest.mark.parametrize("framework", ["megatron-core", "nemo", "megatron-bridge", "torchtune", "huggingface"])
@pytest.mark.parametrize(("targets", "most"), [("all-linear", 1.8), ("q,v", 1.12)])
def test_adapters_are_hardly_slower_than_training_it_all(framework: str, targets: str, most: float) -> None:
    """Where the host sets the pace seven adapters a layer take 1.3 to 1.8 times as long: one took 1.09 times
    (ms-swift, Qwen 1.8B, 512 tokens)."""
    job = {"model": "llama-3.2-1b", "gpu": "h100-sxm", "gpus": 8, "framework": framework, "seq": 512,
           "global_batch": 32, "zero": 0}  # fmt: skip
    full, tuned = (distsim.step(Job.read({**job, **more})).seconds for more in ({}, {"lora_rank": 16,
                   "lora_targets": targets}))  # fmt: skip
    assert tuned < most * full
    long = {**job, "seq": 8192, "model": "llama-3-8b", "global_batch": 8}
    full, tuned = (distsim.step(Job.read({**long, **more})).seconds for more in ({}, {"lora_rank": 16,
                   "lora_targets": targets}))  # fmt: skip
    assert tuned < full


def test_frozen_weights_need_no_second_copy_of_what_is_quantised() -> None:
    """Inputs and gradients are written one way only; Hopper transposes weights that have no bf16 copy in backward."""
    for gpu, turned in (("h100-sxm", 2), ("b200-sxm", 0)):
        job = setup(gpu=gpu, precision="fp8-parameters", lora_targets="q,k,v")
        whole = setup(gpu=gpu, precision="fp8-parameters", lora_rank=None)
        name, chip = "mlp.down", Chip(job)
        frozen, trained = (operation_sums(one, chip, rows(one)[name]) for one in (job, whole))
        m, n, k, _ = rows(job)[name].shape
        assert frozen[0].memory * chip.bandwidth == pytest.approx(3 * m * k)
        assert trained[0].memory * chip.bandwidth == pytest.approx(4 * m * k)
        assert frozen[1].memory * chip.bandwidth == pytest.approx(3 * m * n + turned * n * k)
        assert trained[1].memory * chip.bandwidth == pytest.approx(4 * m * n)


def test_adapters_of_row_parallel_products_gather_their_output() -> None:
    """Both ways under sequence parallelism, forward alone without; part by part where a recipe asks for that."""
    whole = 4096 * 4096 * 2
    for options, expected in (
        ({}, [("all_gather", whole), ("all_gather", whole)]),
        ({"sequence_parallel": False}, [("all_gather", whole), ("all_gather", 0)]),
        ({"framework": "nemo-mlperf"}, [("all_to_all", whole / 4), ("all_to_all", whole / 4)]),
    ):
        up = rows(setup(tp=4, lora_targets="o", **options))["attention.projection.lora_b"]
        assert [(one.op, one.bytes_logical) for one in up.collectives] == expected
        assert [one.phase for one in up.collectives] == ["forward", "backward"]


MLPERF = {"model": "bert", "source": "mlcommons/training_results_v3.0", "gpu": "a100-sxm4-80gb", "n_gpus": "8",
          "seq_len": "512", "micro_batch": "56", "precision": "fp16", "framework": "torch-ddp", "dp": "8",
          "attention": "flash", "optimizer": "lamb", "samples_per_s": "2437", "year": "2022"}  # fmt: skip


def test_unpadded_encoders_compute_the_tokens_that_are_there() -> None:
    """BERT's samples of 512 tokens are half padding, which NVIDIA's code for MLPerf leaves out."""
    told = {"unpad=True": 256, "samples are not padded to 512; about 230 tokens a sample": 230, "padded to 512": None,
            "unpad=False": None, "about 256 tokens a sample if unpadded": None, "no unpadding": None}  # fmt: skip
    runs = {notes: Run({**MLPERF, "notes": notes}, 2) for notes in told}
    assert {notes: unpadded_tokens(run, causal=False) for notes, run in runs.items()} == told
    assert unpadded_tokens(runs["unpad=True"], causal=True) is None
    assert setup_of(runs["unpad=True"]).layout.seq == 256


def test_composed_attention_makes_the_scores_of_whole_packs() -> None:
    found = setup_of(Run({**MLPERF, "attention": "eager", "notes": "packed samples (2.0 per 512 tokens)"}, 2)).layout
    assert (found.seq, found.sample_tokens, found.attention) == (512, 0, "eager")


def test_packs_of_samples_attend_to_one_each_and_pick_masked_positions() -> None:
    notes = "dense_seq_output; packed samples (2.0 per 512 tokens); CUDA graphs of the encoder"
    found = setup_of(Run({**MLPERF, "notes": notes}, 2))
    assert (found.layout.seq, found.layout.sample_tokens) == (512, 256)
    assert (found.kernels.predicted_share, found.kernels.graphs) == (0.15, "modules")
    plain = setup_of(Run(dict(MLPERF), 2))
    assert (plain.kernels.predicted_share, plain.kernels.graphs) == (1.0, "none")
