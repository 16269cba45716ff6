"""Passes through memory on chips whose copies reach more or less of their datasheet's bandwidth than most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distsim import catalog
from distsim.engine.fitting.others import strange_replays
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.steps.compose import stage_numbers
from distsim.engine.steps.work import work_of
from distsim.engine.validate import unseen_runs
from distsim.interop.runs import read_runs
from distsim.specs.accelerator import COPY_FRACTION, Accelerator, Measured
from distsim.specs.job import Job


def _with_copies(setup: Setup, fraction: float | None) -> dict[str, float]:
    chip = setup.accelerator
    measured = Measured.model_validate({**chip.measured.model_dump(), "copy_fraction": fraction})
    changed = replace(setup, accelerator=chip.model_copy(update={"measured": measured}))
    return stage_numbers(work_of(changed))[0]


def test_a_chip_that_nobody_measured_has_its_datasheets_bandwidth() -> None:
    chip: Accelerator = catalog.load("gpus", "l4")
    assert chip.measured.copy_fraction is None
    assert chip.pass_bandwidth == chip.bandwidth
    assert chip.copy_bandwidth == pytest.approx(COPY_FRACTION * chip.bandwidth)


def test_passes_and_updates_take_as_much_longer_as_copies_do() -> None:
    """Products that memory does not limit, and attention, take the same."""
    setup = resolve(Job(model="llama-3-8b", gpu="max-1550-stack", gpus=1, framework="megatron-core", seq=4096))
    usual, slow = _with_copies(setup, None), _with_copies(setup, COPY_FRACTION / 2)
    for part in ("forward.memory", "backward.memory", "optimizer"):
        assert slow[part] == pytest.approx(2 * usual[part], rel=0.02), part
    assert slow["forward.matmul"] == pytest.approx(usual["forward.matmul"], rel=0.02)


def test_runs_on_max_1550_are_told_as_their_memory_is() -> None:
    """BERT by TensorFlow, Llama by torchtitan and by Megatron-DeepSpeed, of five publishers, which nothing is fitted
    to: 22 to 51% too fast while their memory had the datasheet's bandwidth and their exchanges hid behind products. The
    fortieth and the sixty-seventh lot, of which none was known then, are left out."""
    known = [run for run in read_runs(unseen_runs()) if not (run.text("id") or "").startswith(("l40-", "l67-"))]
    runs = [run for run in known if "max-1550" in (run.text("gpu") or "")]
    errors = [found.error for found in strange_replays(runs) if found.error is not None]
    assert len(errors) == 16 and max(map(abs, errors)) < 0.33
    assert sorted(map(abs, errors))[8] < 0.22
