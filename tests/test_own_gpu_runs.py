"""Steps that were measured for distsim on an H100 and an H200 (benchmarks/gpu/steps.py): what is read of them, and
peaks of memory that a real GPU's allocator counted."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

import distsim
from distsim.engine.evidence import Replay, replay
from distsim.engine.fitting.others import strange_replays
from distsim.engine.runs.setup import setup_of
from distsim.engine.validate import unseen_runs
from distsim.interop.runs import Run, read_runs

OWN = [
    run for run in read_runs(unseen_runs()) if (run.text("source") or "").startswith("distsim/benchmarks gpu/steps.py")
]


@pytest.fixture(scope="module")
def replays() -> list[Replay]:
    return strange_replays(OWN)


def test_peaks_of_transformers_are_what_torch_allocated(replays: list[Replay]) -> None:
    """Llama, Qwen, Gemma, mixtures, GPT-2, encoders, images; five precisions; eager, flash, recomputed; nothing is
    fitted to any of them. Compiled steps, adapters and networks written by hand are told apart (docs/findings)."""
    plain = [one for one in replays if one.run.text("framework") == "huggingface"
             and one.run.text("finetune_kind") is None and one.run.text("compile") == "0"]  # fmt: skip
    errors = [abs(one.memory_error) for one in plain if one.memory_error is not None]
    assert len(errors) >= 49
    assert statistics.median(errors) < 0.004 and sorted(errors)[int(0.8 * len(errors))] < 0.01 and max(errors) < 0.03


def test_networks_written_by_hand(replays: list[Replay]) -> None:
    """GPT-2 and Llama in plain torch, eager and compiled: peaks and times, nothing fitted to any."""
    hand = [one for one in replays if "written by hand" in one.run.notes]
    peaks = [abs(one.memory_error) for one in hand if one.memory_error is not None]
    times = [abs(one.error) for one in hand if one.error is not None]
    assert len(peaks) == len(times) == 14
    assert statistics.median(peaks) < 0.02 and max(peaks) < 0.08
    assert statistics.median(times) < 0.08 and max(times) < 0.18


def test_steps_that_fill_the_gpu(replays: list[Replay]) -> None:
    """Half within a tenth though nothing is fitted to them: no kind of kernel is far off in these."""
    full = [one for one in replays if one.error is not None and one.run.text("framework") == "huggingface"
            and "kernels busy for 9" in one.run.notes]  # fmt: skip
    errors = [one.error for one in full if one.error is not None]
    assert len(errors) >= 30 and statistics.median(map(abs, errors)) < 0.11 and max(map(abs, errors)) < 0.25


def cells(**more: str) -> Run:
    (first,) = (run for run in OWN if run.text("id") == "own-0000")
    return replace(first, cells={**first.cells, **more})


def test_updates_are_read_by_name_and_loop() -> None:
    """transformers' Trainer takes the fused update, a loop of one's own torch's default."""
    loop = "own training loop that keeps the loss alone"
    named = {
        ("adamw", loop): "adamw-foreach", ("adamw-forloop", loop): "adamw-forloop", ("adamw-fused", loop): "adamw",
        ("adamw", "Trainer"): "adamw", ("adamw", f"{loop}; foreach=False"): "adamw-forloop",
    }  # fmt: skip
    for (optimizer, notes), name in named.items():
        assert setup_of(cells(optimizer=optimizer, notes=notes)).optimizer.name.removesuffix("-fused") == name


def test_loops_that_keep_the_loss_alone_hold_no_logits() -> None:
    held, gone = (
        replay(cells(notes=f"own training loop{words}"), strange=True).predicted_peak or 0
        for words in ("", " that keeps the loss alone")
    )
    assert held - gone == pytest.approx(4 * 2048 * 128256 * 2, rel=0.01)


def test_dense_masks_are_read_and_cost_attention_threefold() -> None:
    masked, plain = (setup_of(cells(notes=f"Trainer{words}", compile="1")) for words in ("; dense causal mask", ""))
    assert masked.kernels.attention_mask == "always" != plain.kernels.attention_mask
    slow, fast = (replay(cells(notes=f"Trainer{words}", compile="1")).predicted_seconds or 0
                  for words in ("; dense causal mask", ""))  # fmt: skip
    assert 0.02 < slow - fast < 0.06  # 33 ms for 12 in the profile


def test_compiled_transformers_are_noted() -> None:
    job = {"model": "llama-3.2-1b", "gpu": "h100-sxm", "gpus": 1, "framework": "huggingface", "seq": 2048}
    assert any("dense mask" in note for note in distsim.step(**job, compile=True).notes)
    assert not any("dense mask" in note for note in distsim.step(**job).notes)
