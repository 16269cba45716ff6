"""The gated delta rule in plain torch, held against what transformers' own function does."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.launches import DETERMINISTIC_ISSUE, PLAIN_ISSUE, launches
from distsim.engine.runs.setup import setup_of
from distsim.formulas.chunk_rule import (
    chunk_rule_backward_bytes,
    chunk_rule_backward_kernels,
    chunk_rule_forward_bytes,
    chunk_rule_forward_kernels,
    chunk_rule_kept_bytes,
)
from distsim.interop.runs import Run
from distsim.interop.runs.mixer_notes import computes_delta_in_torch
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

COUNTED = {  # bytes a token and head: forward, backward, kept, of 512 tokens (torch 2.13, transformers 5.24)
    (128, 128): (45_324, 186_317, 7_961),
    (64, 128): (31_436, 128_941, 5_401),
    (128, 64): (34_508, 152_429, 6_681),
    (128, 256): (66_956, 254_093, 10_521),
    (256, 128): (73_100, 301_069, 13_081),
}


@pytest.mark.parametrize("widths", COUNTED)
def test_bytes_are_those_that_torch_moves(widths: tuple[int, int]) -> None:
    key, value = widths
    forward, backward, kept = COUNTED[widths]
    assert chunk_rule_forward_bytes(1, key, value) == pytest.approx(forward, rel=0.005)
    assert chunk_rule_backward_bytes(1, key, value, 8) == pytest.approx(backward, rel=0.01)
    assert chunk_rule_kept_bytes(1, key, value) == pytest.approx(kept, rel=0.005)


def test_long_sequences_and_their_kernels() -> None:
    """4,096 tokens of 48 heads."""
    rows, chunks = 48 * 4096, 64
    assert chunk_rule_forward_bytes(rows, 128, 128) == pytest.approx(8_888_713_216, rel=0.005)
    assert chunk_rule_backward_bytes(rows, 128, 128, chunks) == pytest.approx(161_289_760_000, rel=0.01)
    assert [chunk_rule_forward_kernels(n) for n in (8, 16, 64)] == [118, 190, 622]
    assert [chunk_rule_backward_kernels(n) for n in (8, 16, 64)] == [337, 593, 2129]


def _run(seq: int, seconds: float, notes: str) -> Run:
    """Qwen3.8 27B, architecture and shape of Qwen3.5 27B, on eight H20 under DeepSpeed."""
    cells = {
        "id": "one", "source": "somebody", "year": "2026-09", "model": "qwen3.5-27b", "seq_len": str(seq),
        "gpu": "h20", "n_gpus": "8", "gpus_per_node": "8", "dp": "8", "zero_stage": "3", "micro_batch": "1",
        "grad_accum": "4", "global_batch": "32", "precision": "bf16", "recompute": "full", "compile": "0",
        "framework": "deepspeed", "step_time_s": str(seconds), "notes": notes,
    }  # fmt: skip
    return Run(cells, 2)


def _scan(setup: Setup) -> Operation:
    rows = [row for block, _ in build_stages(setup)[0].layers for row in block.operations]
    return next(row for row in rows if row.name == "delta.scan")


def test_backward_takes_time_with_the_square_of_the_length() -> None:
    found = []
    for seq in (2048, 8192):
        setup = setup_of(_run(seq, 1.0, "no fla kernels"))
        _, backward = operation_sums(setup, Chip(setup), _scan(setup))
        found.append(backward)
    assert 12 < found[1].memory / found[0].memory < 16
    assert found[1].kernels == 81 + 32 * 128
    plain = setup_of(_run(8192, 1.0, ""))
    _, fused = operation_sums(plain, Chip(plain), _scan(plain))
    assert found[1].memory > 10 * (fused.memory + fused.attention)


def test_a_measured_run_without_the_package() -> None:
    """55.4 s a step; with fused kernels it was told 35% too fast."""
    told = replay(_run(4096, 55.4, "torch_chunk_gated_delta_rule in PyTorch, no fla kernels"))
    fused = replay(_run(4096, 55.4, ""))
    assert told.error is not None and abs(told.error) < 0.2
    assert fused.error is not None and fused.error < -0.3


@pytest.mark.parametrize(
    ("notes", "torch"),
    [("torch_chunk_gated_delta_rule", True), ("without flash-linear-attention", True), ("fla not installed", True),
     ("Gated DeltaNet by FLA", False), ("", False)],
)  # fmt: skip
def test_notes_of_the_fallback(notes: str, torch: bool) -> None:
    assert computes_delta_in_torch(_run(512, 1.0, notes)) is torch


def test_megatron_has_no_other_that_is_deterministic() -> None:
    """Its steps are plain operations, which cost the host a fifth of one of Megatron's modules."""
    cells = {**_run(4096, 24.2, "").cells, "model": "qwen3.5-27b", "tp": "4", "framework": "megatron-bridge"}
    own, fused = (setup_of(Run({**cells, "notes": notes}, 2)) for notes in ("deterministic mode", ""))
    assert (own.kernels.delta_rule, fused.kernels.delta_rule) == ("torch", "fused")
    forward, _ = launches(own, _scan(own)).issued
    assert forward == pytest.approx(chunk_rule_forward_kernels(4096 / 64) * PLAIN_ISSUE * DETERMINISTIC_ISSUE)
    under_torch = setup_of(_run(4096, 1.0, "deterministic mode"))
    assert under_torch.kernels.delta_rule == "fused"


def test_users_are_told_what_a_missing_package_costs() -> None:
    job: dict[str, Any] = {"model": "qwen3.5-9b", "gpu": "h100-sxm", "gpus": 8, "zero": 3, "seq": 4096}
    told = {name: str(distsim.step(**job, framework=name).to_dict()["notes"]) for name in ("huggingface", "torchtitan")}
    assert "without that package" in told["huggingface"] and "without that package" not in told["torchtitan"]


def test_what_is_kept_is_the_functions_own() -> None:
    """All of a layer but what the rule keeps is as with kernels, lengths of queries and keys aside."""
    setup = setup_of(_run(4096, 1.0, "no fla"))
    names = [row.name for block, _ in build_stages(setup)[0].layers for row in block.operations]
    assert "delta.normalise" not in names
    kept = next(tensor for tensor in _scan(setup).saved if tensor.name == "delta.chunked")
    assert kept.size_bytes == pytest.approx(chunk_rule_kept_bytes(4096 * 48, 128, 128))
    fused = resolve(Job.read({"model": "qwen3.5-27b", "gpu": "h20", "gpus": 8, "seq": 4096}))
    assert not any(tensor.name == "delta.chunked" for tensor in _scan(fused).saved)
