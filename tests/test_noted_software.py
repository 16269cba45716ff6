"""Losses, weights under autocast and releases of torch that the notes of measured runs name."""

from __future__ import annotations

import pytest

from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run

CELLS = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "micro_batch": "2", "global_batch": "16",
         "seq_len": "4096", "precision": "bf16"}  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "notes", "loss"),
    [
        ("nemo-automodel", "fused cross entropy, DeepEP dispatcher", "cut"),
        ("nemo-automodel", "linear cross entropy fused with the head (LCE)", "cut"),
        ("nemo-automodel", "no fused cross entropy", None),
        ("unsloth", "fused CE", "cut"),
        ("transformers", "--fused_ce (fused linear cross entropy)", "fused-linear"),
        ("transformers", "fused cross entropy", None),
        ("megatron-core", "fused cross entropy", None),
    ],
)
def test_a_fused_loss_is_the_one_that_a_library_has(framework: str, notes: str, loss: str | None) -> None:
    assert setup_of(Run({**CELLS, "framework": framework, "notes": notes}, 1)).job.loss == loss


@pytest.mark.parametrize(
    ("cells", "precision"),
    [
        ({"notes": "bf16 autocast over fp32 weights is likely"}, "amp-bf16"),
        ({"notes": "fp32 weights under autocast"}, "amp-bf16"),
        ({"notes": "no autocast over fp32 weights"}, "pure-bf16"),
        ({"notes": "weights loaded in bf16"}, "bf16"),
        ({"notes": "bf16 autocast over fp32 weights", "zero_stage": "2"}, "bf16"),
        ({"notes": "bf16 autocast over fp32 weights", "framework": "megatron-core"}, "bf16-fp32-grads"),
    ],
)
def test_weights_under_autocast_are_fp32(cells: dict[str, str], precision: str) -> None:
    """Not those that DeepSpeed shards, which it holds in 16 bits with a master copy, nor Megatron's."""
    assert setup_of(Run({**CELLS, "framework": "transformers", "dp": "8", **cells}, 1)).precision.name == precision


@pytest.mark.parametrize(
    ("framework", "notes", "norm"),
    [("plain-torch", "network written by hand, PyTorch 2.4.0", "eager"),
     ("plain-torch", "network written by hand, PyTorch 2.10.0", "fused"),
     ("torch-ddp", "network written by hand, PyTorch 2.4.0", "eager"),
     ("torch-ddp", "network written by hand, PyTorch 2.10.0", "fused")],
)  # fmt: skip
def test_torchs_own_norm_is_that_of_the_release_that_notes_name(framework: str, notes: str, norm: str) -> None:
    """Runs of 2026: RMSNorm is one kernel since release 2.9."""
    cells = {**CELLS, "framework": framework, "n_gpus": "1", "global_batch": "2", "year": "2026", "notes": notes}
    assert setup_of(Run(cells, 1)).kernels.norm == norm


@pytest.mark.parametrize(
    ("notes", "loss"),
    [("Liger fused linear cross entropy", "with-head"), ("fused linear cross entropy", "with-head"), ("", "fused")],
)
@pytest.mark.parametrize("framework", ["torch-ddp", "plain-torch"])
def test_a_network_written_by_hand_calls_its_loss_itself(framework: str, notes: str, loss: str) -> None:
    """It takes Liger's functions, not the patches of transformers' models, and a compiler leaves them as they are."""
    cells = {**CELLS, "framework": framework, "dp": "8", "compile": "1", "year": "2026"}
    found = setup_of(Run({**cells, "notes": f"network written by hand; {notes}"}, 1)).kernels
    assert found.loss == loss and found.modules == "own"


def test_plain_loops_around_transformers_models_have_its_modules() -> None:
    cells = {**CELLS, "framework": "plain-torch", "n_gpus": "1", "global_batch": "2"}
    names = {"transformers/timm model with random weights": "torch-ddp", "Hugging Face's BertModel models": "torch-ddp",
             "no transformers models": "plain-torch", "transformers 5.17.0 for comparison": "plain-torch",
             "": "plain-torch"}  # fmt: skip
    assert {notes: setup_of(Run({**cells, "notes": notes}, 1)).framework.name for notes in names} == names


@pytest.mark.parametrize(
    ("notes", "precision"),
    [("torch.autocast (float16) over fp32 weights", "amp-fp16"), ("amp autocast, GradScaler", "amp-fp16"),
     ("fp16 (autocast or not is not said)", "fp16"), ("no autocast", "fp16"), ("apex O2", "fp16")],
)  # fmt: skip
def test_autocast_to_half_that_notes_name_keeps_fp32_weights(notes: str, precision: str) -> None:
    cells = {**CELLS, "precision": "fp16", "framework": "torch-ddp", "notes": notes}
    assert setup_of(Run(cells, 1)).precision.name == precision


@pytest.mark.parametrize(
    ("notes", "loss", "tokens"),
    [("cross entropy from the hidden states in chunks of 2048 (full logits never made)", "with-head", 2048),
     ("cross-entropy in 8 chunks", "with-head", 256), ("cross entropy of whole logits", "eager", 0)],
)  # fmt: skip
def test_a_cross_entropy_in_chunks_is_a_chunked_loss(notes: str, loss: str, tokens: int) -> None:
    kernels = setup_of(Run({**CELLS, "framework": "transformers", "notes": notes}, 1)).kernels
    assert (kernels.loss, kernels.loss_chunk_tokens) == (loss, tokens)


def test_torchtunes_linear_loss_keeps_what_its_chunks_need() -> None:
    cells = {**CELLS, "framework": "torchtune", "notes": "LinearCrossEntropyLoss in 16 chunks"}
    setup = setup_of(Run(cells, 1))
    assert setup.job.loss == "chunked" and setup.kernels.loss_keeps_chunks
