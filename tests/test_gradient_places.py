"""What Transformer Engine keeps to hand to autograd where products add up weights' gradients themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run

LAYER = 4096 * (6144 + 4096 + 28672 + 14336)  # of Llama 3 8B: qkv, output, gate and up, down
HEAD = 128256 * 4096
JOB = {"gpu": "h100-sxm", "framework": "megatron-core", "gpus": 8, "seq": 4096, "zero": 1}


def places(tmp_path: Path, model: str = "llama-3-8b", **more: Any) -> list[float]:
    """Bytes of each stage's buffers beyond those of software without any."""
    bare = tmp_path / "bare.toml"
    bare.write_text('based_on = "megatron-core"\n[kernels]\ngradient_places = "none"\n')
    reports = [distsim.memory(model, **{**JOB, **more, "framework": one}) for one in ("megatron-core", str(bare))]
    return [
        float(own.categories["buffers"] - less.categories["buffers"])
        for own, less in zip(*(one.stages for one in reports), strict=True)
    ]


def test_a_tensor_for_each_shape_not_for_each_layer(tmp_path: Path) -> None:
    assert places(tmp_path) == [2 * (LAYER + HEAD)]
    assert places(tmp_path, tp=4) == [2 * (LAYER + 128512 * 4096) / 4]  # words filled up to 512


def test_the_output_layers_is_on_the_last_stage_alone(tmp_path: Path) -> None:
    assert places(tmp_path, pp=2) == [2 * LAYER, 2 * (LAYER + HEAD)]


def test_experts_share_one_and_frozen_weights_have_none(tmp_path: Path) -> None:
    attention, experts = 4096 * (6144 + 4096), 4096 * (28672 + 14336)
    assert places(tmp_path, "mixtral-8x7b", ep=8) == [2 * (attention + experts + 32000 * 4096)]
    assert places(tmp_path, lora_rank=8)[0] < 2 * LAYER / 100  # adapters' own


@pytest.mark.parametrize(("year", "kinds"), [("2025.2", "none"), ("2025.5", "layers"), ("2025.9", "dense"),
                                             ("2026", "experts")])  # fmt: skip
def test_they_came_one_after_another(year: str, kinds: str) -> None:
    cells = {"model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "4096", "micro_batch": "1",
             "global_batch": "8", "framework": "megatron-core", "year": year}  # fmt: skip
    assert setup_of(Run(cells, 1)).kernels.gradient_places == kinds
