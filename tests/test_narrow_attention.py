"""Attention and output layers in 8 bits: how much faster than in 16, and which runs have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.flash import flash_seconds
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.specs.job import Job

# cuDNN's training kernels, causal, forward and backward in ms: bf16, fp8 and mxfp8 (NVIDIA/cudnn-frontend
# benchmark/sdpa_benchmark_training/results, llama3.1 and dsv3, April 2026)
MEASURED = (
    ("gb200", "llama-7b", 4096, {"fp8": (0.305, 1.167), "mxfp8": (0.326, 1.305), "wide": (0.391, 1.198)}),
    ("gb200", "llama-7b", 8192, {"fp8": (1.074, 3.781), "mxfp8": (1.156, 4.272), "wide": (1.397, 4.127)}),
    ("gb300", "llama-7b", 4096, {"fp8": (0.217, 0.985), "mxfp8": (0.242, 1.203), "wide": (0.323, 1.101)}),
    ("gb300", "llama-7b", 8192, {"fp8": (0.759, 3.087), "mxfp8": (0.856, 3.917), "wide": (1.185, 3.832)}),
    ("gb200", "deepseek-v3", 4096, {"fp8": (0.656, 2.112), "mxfp8": (0.714, 2.620), "wide": (0.977, 3.383)}),
    ("gb300", "deepseek-v3", 8192, {"fp8": (1.758, 6.188), "mxfp8": (1.944, 8.030), "wide": (3.013, 11.074)}),
)
CELLS = {"model": "deepseek-v3", "gpu": "gb300", "n_gpus": "256", "seq_len": "4096", "tp": "1", "pp": "4", "vpp": "4",
         "cp": "1", "ep": "32", "micro_batch": "1", "global_batch": "1024", "precision": "fp8-mx",
         "framework": "nemo-mlperf"}  # fmt: skip


def job(model: str, gpu: str, kind: str, tokens: int = 4096) -> Setup:
    setup = resolve(Job(model=model, gpu=gpu, seq=tokens, micro_batch=1, framework="megatron-bridge"))
    return replace(setup, kernels=setup.kernels.model_copy(update={"attention_format": kind}))


def seconds(setup: Setup) -> tuple[float, float]:
    """Of the kernel alone, whose operands are in 8 bits already."""
    block = build_stages(setup)[0].layers[0][0]
    core = next(one for one in block.operations if one.name == "attention.core")
    forward, backward = flash_seconds(Chip(setup), core._replace(bytes_read=0, bytes_written=0))
    return float(forward), float(backward)


@pytest.mark.parametrize(("gpu", "model", "tokens", "measured"), MEASURED)
@pytest.mark.parametrize("kind", ["fp8", "mxfp8"])
def test_kernels_gain_as_measured(
    kind: str, gpu: str, model: str, tokens: int, measured: dict[str, tuple[float, float]]
) -> None:
    narrow, wide = (seconds(job(model, gpu, name, tokens)) for name in (kind, "wide"))
    for index in (0, 1):
        assert narrow[index] / wide[index] == pytest.approx(measured[kind][index] / measured["wide"][index], rel=0.06)


def test_operands_are_quantised_first() -> None:
    setup = job("llama-7b", "gb300", "mxfp8")
    core = next(one for one in build_stages(setup)[0].layers[0][0].operations if one.name == "attention.core")
    assert flash_seconds(Chip(setup), core)[0] > 1.1 * seconds(setup)[0]


def test_no_gain_is_known_elsewhere() -> None:
    assert seconds(job("llama-7b", "h100-sxm", "fp8")) == seconds(job("llama-7b", "h100-sxm", "wide"))


@pytest.mark.parametrize(("framework", "kind", "bits"), [
    ("megatron-bridge", "fp8", 8), ("megatron-bridge", "mxfp8", 16), ("megatron-bridge", "wide", 16),
    ("torchtitan", "fp8", 16),
])  # fmt: skip
def test_ranks_trade_bytes_where_attention_reads_them(framework: str, kind: str, bits: int) -> None:
    """Transformer Engine quantises queries, keys, values and gradients before its all-to-alls, and its kernels write
    the output in 8 bits (AttnFuncWithCPAndQKVOA2A); others send what they have."""
    setup = resolve(Job(model="llama-3-8b", gpu="gb300", gpus=8, cp=8, cp_mode="all_to_all", framework=framework))
    setup = replace(setup, kernels=setup.kernels.model_copy(update={"attention_format": kind}))
    block = build_stages(setup)[0].layers[0][0]
    sent = [one for operation in block.operations for one in operation.collectives if one.group == "cp"]
    forward = [float(one.bytes_logical) for one in sent if one.phase == "forward"]
    query, key = (8192 / 8 * heads * 128 * bits / 8 for heads in (32, 8))
    assert sorted(forward) == sorted([query, key, key, query])
    assert {float(one.bytes_each or setup.precision.activation_bytes) for one in sent} == {bits / 8}


@pytest.mark.parametrize(
    ("model", "cells", "kind"),
    [
        ("deepseek-v3", {"year": "2026"}, "mxfp8"),  # MLPerf v6.0
        ("deepseek-v3", {"year": "2025"}, "wide"),
        ("deepseek-v3", {"framework": "megatron-bridge", "notes": "CuTeDSL grouped MLP, FP8 attention"}, "mxfp8"),
        ("deepseek-v3", {"framework": "megatron-bridge", "notes": "without FP8 attention"}, "wide"),
        ("llama-3.1-8b", {"ep": "1", "precision": "nvfp4", "pp": "1", "year": "2026"}, "fp8"),
        ("llama-3.1-8b", {"ep": "1", "precision": "fp8", "pp": "1", "notes": "attention not in FP8"}, "wide"),
    ],
)
def test_which_runs_attend_in_8_bits(model: str, cells: dict[str, str], kind: str) -> None:
    assert setup_of(Run({**CELLS, "model": model, **cells}, 1)).kernels.attention_format == kind


@pytest.mark.parametrize(
    ("notes", "narrow"),
    [("MXFP8 LM head (FP8_OUTPUT_PROJ)", True), ("FP8_OUTPUT_PROJ=False", False), ("no FP8 output projection", False)],
)
def test_output_layers_in_8_bits(notes: str, narrow: bool) -> None:
    """Two of them are on the last stage, as MLPerf's DeepSeek-V3 trains its multi-token prediction."""
    setup = setup_of(Run({**CELLS, "notes": notes}, 1))
    assert (setup.kernels.narrow_head, setup.model.mtp_trained) == (narrow, 1)
    stage = build_stages(setup)[-1]
    assert stage.head is not None
    heads = [one for one in stage.head.operations if one.name.endswith("head")]
    assert len(heads) == 2
    sums = [operation_sums(setup, Chip(setup), one)[0] for one in heads]
    assert all((one.matmul8 > 0, one.matmul > 0) == (narrow, not narrow) for one in sums)
