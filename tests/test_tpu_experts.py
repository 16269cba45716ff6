"""Experts' products on TPUs: tiles of a kernel over all groups, not batches of one size."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import replay
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.expert_load import slotted
from distsim.engine.kernels.expert_tiles import gates_apart, tiled_seconds
from distsim.engine.runs.kernels import with_kernels_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import seconds_of
from distsim.formulas.pallas import GRID_STEP_SECONDS, tile_steps
from distsim.interop.runs import Run
from distsim.specs.job import Job

JOB: dict[str, Any] = {
    "model": "deepseek-v2-lite", "gpu": "tpu-v5p", "gpus": 4, "zero": 3, "seq": 2048, "micro_batch": 24,
    "recompute": "full",
}  # fmt: skip


def test_groups_that_share_a_tile_take_it_twice() -> None:
    assert tile_steps(294912, 64, 512) == 576 + 63
    assert tile_steps(100, 1, 512) == 1


@pytest.mark.parametrize(("width", "tiles"), [(1024, 1), (1408, 2), (2048, 2)])
def test_columns_fill_whole_tiles(width: int, tiles: int) -> None:
    """An expert 1,408 wide takes as long as one of 2,048."""
    chip = Chip(resolve(Job(**JOB, framework="maxtext")))
    forward = tiled_seconds(chip, chip.rate, (4608, width, 2048, 64), 2, 1)[0]
    step = 2 * 512 * 1024 * 1024 / chip.rate + GRID_STEP_SECONDS / 2
    assert forward == pytest.approx((576 + 63) * tiles * 2 * step)


def test_gate_and_up_are_two_products_of_maxtext() -> None:
    maxtext, levanter = (resolve(Job(**JOB, framework=name)) for name in ("maxtext", "levanter"))
    up = next(one for one in build_stages(maxtext)[0].usual_layer[0].operations if one.name == "mlp.experts.up")
    assert (gates_apart(maxtext, up), gates_apart(levanter, up)) == (2, 1)


def test_slots_of_one_capacity_are_no_groups() -> None:
    for more, tiled in (({}, True), ({"capacity_factor": 1.25}, False), ({"gpu": "h100-sxm", "gpus": 8}, False)):
        setup = resolve(Job(**{**JOB, **more}, framework="maxtext"))
        assert bool(Chip(setup).grid_kernels and not slotted(setup)) == tiled


def test_a_log_of_maxtext() -> None:
    """5.667 s on four chips of a v5p (MaxText, docs/guides/understand_logs_and_metrics.md); 3.6 without tiles."""
    assert 0.75 < seconds_of(resolve(Job(**JOB, framework="maxtext"))) / 5.667 < 1.05


def test_gate_and_up_apart_take_as_long_as_one_product() -> None:
    """Whole tiles either way."""
    chip = Chip(resolve(Job(model="mixtral-8x7b", gpu="tpu-v5p", gpus=8, framework="maxtext")))
    one, two = (tiled_seconds(chip, chip.rate, (4096, 8192, 4096, 8), 2, parts) for parts in (1, 2))
    assert two == pytest.approx(one)


@pytest.mark.parametrize(("width", "depth"), [(1536, 4096), (2048, 7168), (2880, 2880)])
def test_tiles_that_fit_leave_no_column_empty(width: int, depth: int) -> None:
    """The usual ones are 1,024 wide: 1,536 columns fill three quarters of two."""
    chip = Chip(resolve(Job(**{**JOB, "gpu": "tpu-v7x"}, framework="maxtext")))
    usual, fitted = (tiled_seconds(chip, chip.rate, (4096, width, depth, 192), 2, 1, fits)[0] for fits in (False, True))
    least = 2 * 4096 * 192 * width * depth / chip.rate
    assert least < fitted < 1.6 * least and fitted < 0.7 * usual


@pytest.mark.parametrize(
    ("gpu", "notes", "fitted"),
    [
        ("tpu-v7x", "", True), ("tpu-v5p", "", False), ("tpu-v7x", "dropless (sparse_matmul, megablox)", False),
        ("tpu-v7x", "megablox tiles 512/1024/1024", False), ("tpu-v5p", "megablox with tiles 512/2048/1536", True),
        ("tpu-v5p", "tokamax gmm", True), ("tpu-v7x", "ragged grouped matmul (megablox/tokamax gmm)", True),
        ("tpu-v7x", "no megablox, loss in tiles of the vocabulary", True),
    ],
)  # fmt: skip
def test_recipes_of_ironwood_fit_tiles_and_notes_tell_them(gpu: str, notes: str, fitted: bool) -> None:
    cells = {"model": "deepseek-v2-lite", "gpu": gpu, "n_gpus": "64", "zero_stage": "3", "seq_len": "4096",
             "micro_batch": "4", "framework": "maxtext", "year": "2026", "notes": notes}  # fmt: skip
    setup = with_kernels_of(run := Run(cells, 1), setup_of(run))
    assert (setup.kernels.expert_tiles == "fitted") is fitted


def test_a_mixture_on_ironwood() -> None:
    """Tencent's Hy3 on 64 chips: 21.67 s a step of 1,536 sequences (yangwhale/gpu-tpu-pedia
    tpu/Hunyuan3-295B-Pretraining, QUICKSTART-v7.md), which usual tiles would make 29."""
    cells = {
        "model": "hy3", "family": "llama", "layers": "80", "hidden": "4096", "heads": "64", "kv_heads": "8",
        "head_dim": "128", "ffn_hidden": "13312", "gated_mlp": "yes", "vocab": "120832", "n_experts": "192",
        "top_k": "8", "moe_ffn_hidden": "1536", "shared_experts": "1", "seq_len": "4096", "gpu": "tpu-v7x",
        "n_gpus": "64", "zero_stage": "3", "global_batch": "1536", "precision": "bf16", "recompute": "full",
        "offload": "decoder_layer_input", "framework": "maxtext", "step_time_s": "21.67", "year": "2026",
        "notes": "first layer dense, 79 MoE layers",
    }  # fmt: skip
    found, usual = (replay(Run({**cells, "notes": notes}, 1)).error for notes in (cells["notes"], "megablox"))
    assert found == pytest.approx(0, abs=0.1) and usual is not None and usual > 0.3
