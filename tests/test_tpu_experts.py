"""Experts' products on TPUs: tiles of a kernel over all groups, not batches of one size."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.expert_load import slotted
from distsim.engine.kernels.expert_tiles import gates_apart, tiled_seconds
from distsim.engine.step import seconds_of
from distsim.formulas.pallas import GRID_STEP_SECONDS, tile_steps
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
