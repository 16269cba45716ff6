"""Full recomputation with several layers in each checkpoint.

The oracle: transformers 5.24 models on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says, whose
layers run in torch.utils.checkpoint in groups of so many.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.footprint.checkpoint_groups import group_starts, layers_ahead
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.compute import stage_compute
from distsim.engine.memory import memory_of
from distsim.specs.job import Job

ROWS = list(csv.DictReader((Path(__file__).parent / "oracles" / "torch_checkpoint_groups.csv").open()))
HELD = 0.01
"""Of the peak: with one layer a checkpoint it is as far off."""


def _in_groups(row: dict[str, str]) -> Setup:
    """A row's job under transformers, as if it had such groups."""
    framework = catalog.load("frameworks", "huggingface")
    supports = framework.supports.model_copy(update={"recompute_groups": True})
    job = Job(
        model=row["model"], gpus=1, framework="huggingface", seq=int(row["seq"]), micro_batch=int(row["micro_batch"]),
        precision="pure-bf16", recompute="full", recompute_group=int(row["recompute_group"]),
    )  # fmt: skip
    return resolve(job, {"framework": framework.model_copy(update={"supports": supports})})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}-{row['recompute_group']}")
def test_as_pytorch_keeps_and_allocates(row: dict[str, str]) -> None:
    (stage,) = memory_of(_in_groups(row)).stages
    parts = sum(stage.categories[name] for name in ("parameters", "gradients", "optimizer", "activations"))
    assert stage.saved.total == pytest.approx(int(row["saved_bytes"]), rel=1e-4)
    assert parts == pytest.approx(int(row["peak_bytes"]), rel=HELD)


def _setup(**options: Any) -> Setup:
    usual = {"model": "llama-7b", "gpus": 8, "recompute": "full", "recompute_group": 3}
    return resolve(Job(**{**usual, **options}))


@pytest.mark.parametrize(
    ("options", "starts"),
    [({}, range(0, 32, 3)), ({"recompute_group": 40}, [0]), ({"pp": 4}, [0, 3, 6]),
     ({"pp": 4, "vpp": 2}, [0, 3, 4, 7]), ({"pp": 2, "schedule": "dualpipe", "recompute_group": 16}, [0])],
)  # fmt: skip
def test_groups_begin_anew_in_each_chunk(options: dict[str, Any], starts: Any) -> None:
    setup = _setup(global_batch=64, **options)
    assert group_starts(setup, build_stages(setup)[0]) == tuple(starts)


def test_a_layer_is_behind_the_inputs_of_earlier_groups_and_all_of_its_own() -> None:
    setup = _setup()
    (stage,) = build_stages(setup)
    assert [layers_ahead(setup, stage, place)[0] for place in (0, 2, 3, 8, 31)] == [
        (0, 0), (0, 2), (1, 0), (2, 2), (10, 1)
    ]  # fmt: skip


def test_one_layer_a_checkpoint_is_what_nobody_asked_for() -> None:
    plain, stated = _setup(recompute_group=None), _setup(recompute_group=1)
    assert memory_of(plain).peak == memory_of(stated).peak
    many = _setup(recompute_group=4, micro_batch=8)
    assert distsim.step(many.job).seconds == pytest.approx(
        distsim.step(_setup(micro_batch=8, recompute_group=1).job).seconds
    )


def test_only_the_last_layer_of_a_checkpoint_is_not_computed_to_its_end() -> None:
    """Where recomputation stops as soon as all saved tensors are there (torch), the second product of the MLP is left
    out of half of the layers in groups of two, and of one of 32 in a single group."""

    def again(size: int) -> float:
        setup = _setup(framework="plain-torch", gpus=1, recompute_group=size)
        return float(stage_compute(setup, build_stages(setup)[0]).phases["recompute"].matmul)

    one, two, whole = (again(size) for size in (1, 2, 32))
    assert two - one == pytest.approx((whole - one) * (1 / 2) / (31 / 32), rel=1e-6)
    assert whole - one == pytest.approx(one * 11008 / (4 * 4096 + 2 * 11008) * 31 / 32, rel=0.05)


def test_fewer_inputs_save_where_many_micro_batches_wait() -> None:
    """Of a deep pipeline's first stage each of 20 in flight keeps half of the inputs, and one computes two layers."""
    usual = {"model": "llama-2-70b", "pp": 20, "gpus": 20, "global_batch": 64, "micro_batch": 4}
    one, two = (memory_of(_setup(recompute_group=size, **usual)).stages[0] for size in (1, 2))
    assert two.saved.layers == one.saved.layers / 2
    assert two.categories["activations"] < one.categories["activations"]


def test_advice_names_other_groups() -> None:
    report = distsim.memory("llama-7b", gpus=8, zero=2, micro_batch=4, seq=8192, recompute="full", recompute_group=32)
    assert not report.fits
    shown = [one.shown for one in distsim.advise(report)]
    found = {one["recompute_group"] for one in shown if "recompute_group" in one}
    assert found and found <= {1, 2, 4}


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"recompute": "none"}, "has no effect with --recompute none"),
     ({"recompute_layers": 4}, "recompute all of a stage, but --recompute-layers is 4"),
     ({"framework": "fsdp"}, "fsdp has one layer in each checkpoint, not 3")],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(distsim.DistsimError, match=problem):
        _setup(**options)


def test_a_group_larger_than_a_chunk_is_all_of_it_and_told() -> None:
    setup = _setup(pp=4, recompute_group=100)
    assert setup.layout.recompute_group == 8
    assert "--recompute-group 100: a checkpoint covers 8 layers, all of a stage's chunk" in setup.notes
    assert not any("checkpoint covers" in one for one in _setup(pp=4, recompute_group=8).notes)
