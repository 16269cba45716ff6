"""Kernels in Triton that write gradients over what they kept, and functions that run an MLP with its adapters."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import Job
from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.memory import memory_of
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.units import GIB

ALLOCATED = [
    ("llama-3.2-1b", 32768, 6.90), ("llama-3.2-1b", 131072, 20.26), ("qwen3-1.7b", 65536, 15.09),
    ("qwen3-1.7b", 131072, 26.82), ("qwen3-4b", 32768, 17.04), ("qwen3-4b", 65536, 26.24),
]  # fmt: skip
"""Model, tokens of one sequence, and the peak that torch allocated, in GiB: rank 16 on all products in bf16,
checkpointed (axolotl-ai-cloud/axolotl pull request 3800, a comment of 2026-07-05)."""
CONTEXTS = [
    ("llama-3.1-8b", "unsloth", 8, 2972), ("llama-3.1-8b", "unsloth", 24, 78475),
    ("llama-3.1-8b", "unsloth", 80, 342733), ("llama-3.3-70b", "unsloth", 48, 12106),
    ("llama-3.3-70b", "unsloth", 80, 89389), ("llama-3.1-8b", "huggingface", 24, 5789),
    ("llama-3.1-8b", "huggingface", 80, 28454), ("llama-3.3-70b", "huggingface", 80, 6916),
]  # fmt: skip
"""Model, software, a card's nominal GB, and the longest sequence that it trained: QLoRA of rank 32 on all products, one
sequence at a time (docs.unsloth.ai, Unsloth Benchmarks, of December 2024)."""


def _rows(setup: Setup) -> dict[str, Any]:
    return {row.name: row for row in build_stages(setup)[0].layers[0][0].operations}


def _adapted(**options: Any) -> Setup:
    given = {"model": "llama-3.1-8b", "gpu": "a100-sxm4-80gb", "gpus": 1, "seq": 4096, "lora_rank": 16}
    return resolve(Job(**(given | {"lora_targets": "all-linear"} | options)))


@pytest.mark.parametrize(("model", "tokens", "measured"), ALLOCATED)
def test_peaks_of_axolotls_functions(model: str, tokens: int, measured: float) -> None:
    """Each tensor of a layer is counted once: without what they overwrite the first peak was 21% too high."""
    cells = {
        "model": model, "gpu": "rtx-5090", "n_gpus": "1", "seq_len": str(tokens), "micro_batch": "1", "year": "2026-07",
        "precision": "bf16", "recompute": "full", "attention": "flash", "framework": "axolotl", "compile": "0",
        "finetune_kind": "lora", "lora_rank": "16", "mem_peak_gb_per_gpu": str(measured), "mem_kind": "allocated",
        "notes": "LoRA r16 on all linear layers, all three fused LoRA kernels, Liger RMSNorm and fused linear cross "
                 "entropy, gradient checkpointing",
    }  # fmt: skip
    error = replay(Run(cells, 2)).memory_error
    assert error is not None and abs(error) < 0.01


@pytest.mark.parametrize(("model", "framework", "card", "tokens"), CONTEXTS)
def test_published_contexts_fill_their_card(model: str, framework: str, card: int, tokens: int) -> None:
    """They do by 79 to 99%: an allocator keeps the rest, or somebody left it free."""
    report = memory_of(
        _adapted(model=model, framework=framework, seq=tokens, lora_rank=32, quantize="nf4", recompute="full",
                 optimizer="adamw-8bit")
    )  # fmt: skip
    assert 0.78 < report.stages[0].peak / (card * GIB) < 1.0


def test_a_function_makes_the_product_again() -> None:
    """The last product's input is kept by adapters that are modules, and by the function where one drops something."""
    kept = {
        name: {tensor.name for tensor in _rows(setup)["mlp.down.lora_a"].saved}
        for name, setup in (
            ("modules", _adapted(framework="huggingface")),
            ("function", _adapted(framework="unsloth")),
            ("dropped", _adapted(framework="unsloth", lora_dropout=0.1)),
            ("two of three", _adapted(framework="unsloth", lora_targets="up,down")),
        )
    }
    assert not any("product" in name or "input" in name for name in kept["function"])
    assert "mlp.product" in kept["two of three"]
    assert any("input" in name for name in kept["modules"]) and any("input" in name for name in kept["dropped"])


def test_gradients_stand_where_the_factors_did() -> None:
    """Beside the gradient of their product, which is half as large as both."""
    eager, fused, liger = (_rows(_adapted(framework="huggingface", **more))["mlp.activation"]
                           for more in ({}, {"compile": True}, {"loss": "liger"}))  # fmt: skip
    both = 2 * 4096 * 14336 * 2
    assert sum(tensor.size_bytes for tensor in liger.transient_backward) == both / 2
    for other in (eager, fused):
        assert sum(tensor.size_bytes for tensor in other.transient_backward) == both * 1.5


def test_checkpoints_of_unsloth_are_in_host_memory() -> None:
    """Unless the run is older, or says otherwise; and the word for it says so of any trainer."""
    cells = {"model": "llama-3-8b", "gpu": "a100-sxm4-80gb", "n_gpus": "1", "seq_len": "2048", "micro_batch": "1",
             "precision": "bf16", "finetune_kind": "lora", "lora_rank": "16", "framework": "unsloth"}  # fmt: skip
    told = {
        name: setup_of(Run({**cells, **more}, 2)).offload
        for name, more in (("now", {}), ("old", {"year": "2024-01"}), ("none", {"offload": "none"}),
                           ("word", {"framework": "trl", "recompute": "unsloth"}))
    }  # fmt: skip
    assert told == {"now": ("activations",), "old": (), "none": (), "word": ("activations",)}


@pytest.mark.parametrize(("loss", "activation"), [("liger", "fused"), ("foak", "eager"), ("foak-liger", "eager")])
def test_ibms_kernels_leave_gated_products(loss: str, activation: str) -> None:
    kernels = _adapted(framework="huggingface", loss=loss).kernels
    assert (kernels.norm, kernels.rope, kernels.activation) == ("fused", "fused", activation)
    assert (kernels.loss == "with-head") == (loss != "foak")


def test_flash_attention_sums_gradients_of_queries_apart() -> None:
    """In fp32, and makes those of keys and values for each of the heads that share them."""
    rows = {name: _rows(_adapted(framework="megatron-core", lora_rank=None, lora_targets=None, model=name))
            for name in ("llama-3.1-8b", "llama-7b")}  # fmt: skip
    beside = {
        name: {one.name: one.size_bytes for one in row["attention.core"].transient_backward if "." in one.name}
        for name, row in rows.items()
    }
    stream = 4096 * 4096 * 2
    assert beside["llama-3.1-8b"]["attention.query_sums"] == 2 * stream
    assert beside["llama-3.1-8b"]["attention.key_gradients"] == stream
    assert "attention.key_gradients" not in beside["llama-7b"] and "attention.query_sums" in beside["llama-7b"]
    pallas = _rows(_adapted(framework="maxtext", gpu="tpu-v5p", lora_rank=None, lora_targets=None))["attention.core"]
    assert not any(one.name == "attention.query_sums" for one in pallas.transient_backward)


def test_only_what_is_computed_again_leaves_the_gpu() -> None:
    """Unsloth's default goes with its checkpoints; a search tries those alone, and others where nothing is offloaded,
    as its commands do."""
    assert _adapted(framework="unsloth").offload == ("activations",)
    for kept in ({"recompute": "none"}, {"recompute_layers": 8}, {"offload": "none"}):
        assert _adapted(framework="unsloth", **kept).offload == ()
    with pytest.raises(DistsimError, match="offloads checkpoints alone"):
        _adapted(framework="unsloth", recompute="none", offload="activations")
    job: dict[str, Any] = {"gpu": "rtx-4090", "gpus": 2, "seq": 2048, "lora_rank": 16, "quantize": "nf4",
                           "framework": "unsloth", "global_batch": 16}  # fmt: skip
    usual, free = (distsim.search("llama-3-8b", **job, **more) for more in ({}, {"offload": "none"}))
    assert {one.report.setup.recompute for one in usual.best} == {"full"}
    assert "none" in {one.report.setup.recompute for one in free.best}
    assert any("--offload none tries others" in note for note in usual.notes) and usual.evaluated < free.evaluated
    best = usual.best[0]
    again = distsim.step("llama-3-8b", **job, micro_batch=int(best.report.setup.layout.micro_batch))
    assert again.seconds == pytest.approx(best.report.seconds, rel=1e-9)


def test_a_plan_of_one_stage_of_zero_alone_finds_layouts() -> None:
    """Unsloth runs ZeRO 0 only; plans tried 1, as where nobody says, and found none."""
    plan = distsim.plan("llama-3-8b", tokens=1e7, gpu="h100-sxm", gpus=1, framework="unsloth", lora_rank=16, seq=2048,
                        global_batch=16)  # fmt: skip
    assert plan.options
