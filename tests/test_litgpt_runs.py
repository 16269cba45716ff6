"""What litgpt's models hold in measured runs: gradients that come and go, losses of all logits or a few, Fabric's
precisions, DDP's buckets."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.evidence import replay
from distsim.engine.runs.memory import held_by
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run

THUNDER = "benchmark_litgpt.py: model.to(bf16); max_memory_allocated in GB of 1e9"
STABLE_CODE = {"model": "stablecode-completion-alpha-3b", "family": "gpt_neox", "hidden": 2560, "heads": 32,
               "kv_heads": 32, "head_dim": 80, "ffn_hidden": 10240, "gated_mlp": 0, "vocab": 49152,
               "tied_embeddings": 0}  # fmt: skip
QWEN = {"model": "Qwen2.5-7B cut to 4 layers", "family": "qwen2", "hidden": 3584, "heads": 28, "kv_heads": 4,
        "head_dim": 128, "ffn_hidden": 18944, "gated_mlp": 1, "vocab": 152064, "tied_embeddings": 0}  # fmt: skip


def _run(**cells: Any) -> Run:
    given = {"gpu": "H100 80GB HBM3", "n_gpus": 1, "micro_batch": 1, "grad_accum": 1, "precision": "pure-bf16",
             "attention": "sdpa", "optimizer": "adamw_torch_fused", "framework": "litgpt", "year": "2024-09",
             "mem_kind": "allocated GB", "notes": THUNDER, "source": "Lightning-AI/lightning-thunder"}  # fmt: skip
    return Run({name: str(value) for name, value in {**given, **cells}.items()}, 2)


@pytest.mark.parametrize(
    ("cells", "gigabytes"),
    [
        ({**STABLE_CODE, "layers": 32, "seq_len": 2048, "compile": 1, "recompute": "none"}, 23.63),
        ({**STABLE_CODE, "layers": 32, "seq_len": 16384, "compile": 1, "recompute": "none"}, 71.73),
        ({**STABLE_CODE, "layers": 4, "seq_len": 16384, "recompute": "full"}, 10.37),
        ({**QWEN, "layers": 4, "seq_len": 4096, "recompute": "full"}, 17.55),
    ],
)
def test_gradients_go_after_each_step_and_a_loss_of_all_logits_has_its_gradients(
    cells: dict[str, Any], gigabytes: float
) -> None:
    """lightning-thunder's issue 1175 and pull request 1616."""
    error = replay(_run(**cells, mem_peak_gb_per_gpu=gigabytes)).memory_error
    assert error is not None and abs(error) < 0.04


def test_lightnings_trainer_clears_gradients_behind_the_next_forward_pass() -> None:
    cells = {"model": "llama-7b", "seq_len": 512, "micro_batch": 4}
    stays = {"litgpt 0.5.7 under Lightning's Trainer": False, "litgpt 0.5.7": True}
    for notes, grows in stays.items():
        run = _run(**cells, notes=notes)
        assert held_by(run, setup_of(run), 2025).framework.buffers.gradients_grow is grows


def test_bf16_mixed_is_fabrics_autocast() -> None:
    cells = {"model": "pythia-1b", "seq_len": 512}
    for cell in ("bf16-mixed", "bf16_mixed", "bfloat16-mixed"):
        assert setup_of(_run(**cells, precision=cell)).precision.name == "amp-bf16"
        job = distsim.memory("pythia-1b", gpu="a100-sxm4-80gb", gpus=1, framework="litgpt", precision=cell)
        assert job.setup.precision.name == "amp-bf16"
    assert setup_of(_run(**cells, precision="bf16-true")).precision.name == "pure-bf16"
    bridge = distsim.memory(
        "pythia-1b", gpu="a100-sxm4-80gb", gpus=1, framework="megatron-bridge", precision="bf16_mixed"
    )
    assert bridge.setup.precision.name == "bf16"


def test_whole_replicas_are_in_ddps_buckets() -> None:
    options: dict[str, Any] = {"gpu": "a100-sxm4-80gb", "framework": "litgpt", "precision": "pure-bf16"}
    one, two = (distsim.memory("pythia-1b", gpus=gpus, zero=0, **options).worst for gpus in (1, 2))
    more = two.categories["buffers"] - one.categories["buffers"]
    assert more == pytest.approx(one.categories["parameters"], rel=0.01)
