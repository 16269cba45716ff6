"""Grouped keys in torch's own attention: what takes them, and who copied them to all heads, by releases."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.interop.runs import Run

QWEN = {
    "model": "qwen3-0.6b", "seq_len": 2048, "gpu": "rtx-4090", "n_gpus": 1, "micro_batch": 1, "global_batch": 1,
    "precision": "fp32", "recompute": "none", "attention": "sdpa", "optimizer": "adamw", "framework": "huggingface",
    "year": 2026, "step_time_s": 0.4201, "mem_peak_gb_per_gpu": "18345 MiB", "mem_kind": "allocated",
    "finetune_kind": "full",
}  # fmt: skip
"""A report "Day 08, profiling of training on one card" of 2026: fp32 throughout, an own loop, whole logits."""
LOOP = "own training loop of plain torch; no TF32"


def _replay(notes: str, **cells: Any) -> Replay:
    found = replay(Run({name: str(cell) for name, cell in {**QWEN, **cells, "notes": f"{LOOP}; {notes}"}.items()}, 2))
    assert found.setup is not None
    return found


def test_torchs_memory_efficient_kernel_takes_them() -> None:
    found = _replay("torch 2.14")
    assert found.memory_error == pytest.approx(0, abs=0.01)
    assert found.error == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("notes", "gpu", "takes"),
    [
        ("torch 2.14", "rtx-4090", True), ("PyTorch 2.15.1", "rtx-4090", True), ("torch 2.13", "rtx-4090", False),
        ("torch 2.14, before torch 2.9", "rtx-4090", False), ("", "rtx-4090", False), ("torch 2.14", "mi300x", False),
    ],
)  # fmt: skip
def test_releases_that_take_them(notes: str, gpu: str, takes: bool) -> None:
    setup = _replay(notes, gpu=gpu).setup
    assert setup is not None and setup.kernels.efficient_groups is takes


@pytest.mark.parametrize(
    ("year", "attention", "framework", "copied"),
    [
        ("2024-06", "sdpa", "huggingface", True), ("2025-06", "sdpa", "deepspeed", True),
        ("2025-08", "sdpa", "huggingface", False), ("2026", "sdpa", "huggingface", False),
        ("2024-06", "flash-2", "huggingface", False), ("2024-06", "flash", "huggingface", False),
        ("2024-06", "sdpa", "torchtitan", False),
    ],
)  # fmt: skip
def test_transformers_copied_them_until_july_2025(year: str, attention: str, framework: str, copied: bool) -> None:
    setup = _replay("", year=year, attention=attention, framework=framework, precision="bf16", gpu="h100-sxm").setup
    assert setup is not None and setup.kernels.keys_expanded is copied


def test_copies_are_what_they_take() -> None:
    """Keys and values of 28 layers, once more for each head that shares them (8 of 16), in bf16."""
    cells = {"precision": "pure-bf16", "gpu": "h100-sxm"}
    peaks = [_replay("", year=year, **cells).predicted_peak or 0 for year in ("2025-06", "2025-08")]
    assert peaks[0] - peaks[1] == pytest.approx(28 * 2 * 2048 * 8 * 128 * 2, rel=0.2)


def test_copied_keys_are_not_grouped_for_a_kernel_in_fp32() -> None:
    """What transformers of before July 2025 gives torch has as many keys as queries, which its memory-efficient kernel
    takes; grouped ones come to plain products, whose scores are in memory (16 heads of 28 layers, 4,096 by 4,096)."""
    peaks = [_replay("", year=year, seq_len=4096).predicted_peak or 0 for year in ("2025-06", "2025-08")]
    assert peaks[1] - peaks[0] > 0.9 * 28 * 16 * 4096**2 * 4


@pytest.mark.parametrize(
    ("gpu", "year", "plain"),
    [("v100-sxm2-32gb", "2026", True), ("quadro-rtx-8000", "2026", True), ("v100-sxm2-32gb", "2025-06", False),
     ("a100-sxm4-80gb", "2026", False)],
)  # fmt: skip
def test_chips_before_ampere_have_no_kernel_for_them(gpu: str, year: str, plain: bool) -> None:
    """torch's flash kernel is for Ampere and newer, its memory-efficient one for as many keys as queries: scores of 28
    layers of 16 heads are in memory then."""
    cells = {"precision": "amp-fp16", "gpu": gpu, "year": year}
    peaks = [_replay("", seq_len=length, **cells).predicted_peak or 0 for length in (1024, 2048, 3072)]
    squares = peaks[2] - 2 * peaks[1] + peaks[0]  # what grows with the square of the length, and lengths' rounding
    scores = 28 * 16 * 2 * 1024**2 * 4
    assert (squares > 0.9 * scores) is plain
