"""Experts whose matrices are slices of one tensor: what a loop over them moves and holds backward, against torch."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from distsim import Job
from distsim.engine.footprint.backward import Gradients, backward_peak
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.kernels.expert_modules import slice_bytes, waited
from distsim.engine.kernels.launches import launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.memory import memory_of
from distsim.engine.runs.setup import setup_of
from distsim.formulas.expert_buffers import sliced_gradient_bytes
from distsim.interop.runs import Run
from distsim.interop.runs.expert_kernels import slices_experts
from distsim.layers.ledger import Operation
from tests.test_recipes import changed, operation

ORACLE = Path(__file__).parent / "oracles" / "sliced_experts.csv"
NOTES = "experts fused into three tensors a layer, a Python loop over experts (F.linear of each slice)"


def measured() -> list[dict[str, int]]:
    lines = [line for line in ORACLE.read_text().splitlines() if not line.startswith("#")]
    return [{name: int(value) for name, value in row.items()} for row in csv.DictReader(lines)]


def job(**more: object) -> Setup:
    options = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 16, "seq": 4096, "zero": 3, "framework": "fsdp"}
    return changed(resolve(Job(**{**options, **more})), expert_products="modules")


@pytest.mark.parametrize("row", measured(), ids=lambda row: f"{row['experts']}x{row['hidden']}x{row['ffn']}")
def test_gradients_of_slices_move_and_hold_what_torch_does(row: dict[str, int]) -> None:
    experts, down = row["experts"], row["experts"] * row["hidden"] * row["ffn"] * row["bytes_each"]
    up = 2 * down  # of both tensors: zeros written, slices read and written, two read and one written for each sum
    assert (row["zeros"], row["copies"], row["sums"]) == (2 * experts, 2 * experts, 2 * (experts - 1))
    moved = sum(size * (experts + 2 * experts / experts + 3 * (experts - 1)) for size in (up, down))
    assert sliced_gradient_bytes(experts, up) + sliced_gradient_bytes(experts, down) == moved
    # the sums of both, the larger one's latest, and the product that is copied into that
    assert row["peak_bytes"] == pytest.approx(2 * up + down + up / experts, rel=0.005)


def test_a_layer_adds_them_to_its_backward_and_nothing_where_they_do_not_train() -> None:
    plain = job()
    sliced = changed(plain, expert_slices=True)
    dispatch = operation(sliced, "mlp.dispatch")
    matrix = 128 * 768 * 2048 * 2
    more = sliced_gradient_bytes(128, 2 * matrix) + sliced_gradient_bytes(128, matrix)
    assert slice_bytes(sliced) == more
    assert moved_bytes(sliced, dispatch)[1] - moved_bytes(plain, dispatch)[1] == more
    assert moved_bytes(sliced, dispatch)[0] == moved_bytes(plain, dispatch)[0]
    assert slice_bytes(plain) == slice_bytes(changed(job(lora_rank=16), expert_slices=True)) == 0
    assert slice_bytes(changed(job(model="qwen3-8b"), expert_slices=True)) == 0
    assert waited(sliced) == 4 * waited(plain)
    up = operation(sliced, "mlp.experts.up")
    frozen = up._replace(weight_gradient=False)
    assert launches(sliced, up).kernels[1] - launches(sliced, frozen).kernels[1] >= 128 * 4


def test_a_layer_holds_the_sums_of_both_tensors_and_a_third() -> None:
    sliced = changed(job(), expert_slices=True)
    matrix = 128 * 768 * 2048 * 2
    down = operation(sliced, "mlp.experts.down")
    assert [t.size_bytes for t in down.transient_backward if t.name == "mlp.experts.slices"] == [4 * matrix]
    rows: tuple[Operation, ...] = (operation(sliced, "mlp.experts.up"), down)
    usual = (rows[0], operation(job(), "mlp.experts.down"))
    peaks = [backward_peak(one, Gradients(0, 2), 0, sliced.kernels).last for one in (rows, usual)]
    assert peaks[0] >= 5 * matrix > peaks[1]
    full = job(seq=512, recompute="full")
    assert memory_of(changed(full, expert_slices=True)).peak - memory_of(full).peak > matrix


def test_notes_of_a_run_tell_of_slices() -> None:
    cells = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "n_gpus": "16", "framework": "huggingface", "year": "2026-04"}
    for notes, told in ((NOTES, True), ("experts_implementation=eager", True), ("a loop over experts", False)):
        run = Run({**cells, "seq_len": "4096", "micro_batch": "1", "global_batch": "16", "notes": notes}, 1)
        assert slices_experts(run) is told
        kernels = setup_of(run).kernels
        assert (kernels.expert_products, kernels.expert_slices) == ("modules", told)
