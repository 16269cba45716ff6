"""What notes and cells of measured runs say of weights, optimizer states and losses, and what peaks count of these."""

from typing import Any

import pytest

from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup
from distsim.interop.runs import Run
from distsim.units import GIB

WHOLE = {"model": "qwen3-0.6b", "gpu": "rtx-4070", "n_gpus": "1", "seq_len": "1024", "micro_batch": "1",
         "global_batch": "16", "framework": "huggingface", "precision": "bf16", "year": "2026",
         "finetune_kind": "full", "recompute": "full", "optimizer": "adamw_8bit", "step_time_s": "3.4",
         "mem_peak_gb_per_gpu": "8.3", "mem_kind": "allocated"}  # fmt: skip


def setup_of(**more: str) -> Setup:
    setup = replay(Run({**WHOLE, **more}, 2)).setup
    assert setup is not None
    return setup


def peak_gib(**more: str) -> float:
    peak: Any = replay(Run({**WHOLE, **more}, 2)).predicted_peak
    return float(peak) / GIB


def test_states_in_unified_memory_are_not_in_torchs_counters() -> None:
    """2.03 bytes a parameter, 8 of words, which the driver's own figure has."""
    words = 151_936 * 1024
    states = ((0.596e9 - words) * 2.03125 + words * 8) / GIB
    plain, paged = peak_gib(), peak_gib(optimizer="paged_adamw_8bit")
    assert plain - paged == pytest.approx(states, rel=0.03)
    assert peak_gib(optimizer="PagedAdamW8bit", mem_kind="reserved") < peak_gib(mem_kind="reserved")
    driver = {"mem_kind": "nvidia-smi"}
    assert peak_gib(optimizer="paged_adamw_8bit", **driver) == pytest.approx(peak_gib(**driver))


def test_training_all_parameters_is_no_word_for_deepspeed() -> None:
    assert setup_of(notes="Full-parameter continued pretraining").layout.zero == 0
    assert setup_of(notes='method "Full-parameter"').layout.zero == 3


@pytest.mark.parametrize("notes", ["Parameter storage: FP32, compute BF16", "fp32 weights under autocast"])
def test_weights_trained_in_fp32_stay_so(notes: str) -> None:
    assert setup_of().precision.name == "pure-bf16"
    assert setup_of(notes=notes).precision.name == "amp-bf16"
    assert setup_of(notes="no fp32 weights").precision.name == "pure-bf16"


def test_reinforcement_learning_needs_no_logits() -> None:
    rl = {"framework": "prime-rl", "gpu": "h100-sxm", "optimizer": "adamw", "precision": "bf16"}
    assert setup_of(**rl, notes="RL trainer on fake batches").kernels.loss == "with-head"
    assert setup_of(**rl, notes="SFT").kernels.loss != "with-head"
    assert setup_of(notes="RL trainer on fake batches").kernels.loss == setup_of().kernels.loss  # has no such loss


@pytest.mark.parametrize(
    ("notes", "size"),
    [
        ("precision-aware optimizer, both Adam moments in bf16", 2), ("BF16 moments and FP32 main weights", 2),
        ("BF16 gradients and moments", 2), ("bf16 optimizer states", 2), ("fp32 moments", 4), ("no bf16 moments", 4),
        ("both Adam moments in fp32, weights bf16", 4), ("precision-aware optimizer", 4),
    ],
)  # fmt: skip
def test_states_in_16_bits_are_read_from_notes(notes: str, size: int) -> None:
    """Two bytes less of each of two states, on as many ranks as share them."""
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "tp": "2", "pp": "1", "seq_len": "4096",
             "micro_batch": "1", "global_batch": "16", "framework": "megatron-core", "precision": "bf16",
             "zero_stage": "1", "year": "2026"}  # fmt: skip
    found, wide = (replay(Run({**cells, "notes": told}, 2)).setup for told in (notes, ""))
    assert found is not None and wide is not None and wide.precision.state_bytes == 4
    assert [one.bytes_under(found.precision) for one in found.optimizer.states if one.shape == "full"] == [size, size]


def test_states_in_16_bits_take_less_memory() -> None:
    whole = {"framework": "megatron-core", "gpu": "h100-sxm", "tp": "1", "pp": "1", "finetune_kind": "",
             "optimizer": "adam"}  # fmt: skip
    wide, narrow = (peak_gib(**whole, notes=told) for told in ("", "bf16 moments"))
    assert wide - narrow == pytest.approx(0.596e9 * 4 / GIB, rel=0.03)
