"""What software does where a job says nothing: of its own settings, not of Megatron's."""

from __future__ import annotations

import pytest

import distsim
from distsim import Job
from distsim.engine.jobs.resolve import resolve
from distsim.interop.runs import Run
from distsim.interop.runs.sharding import reduces_once

JOB = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 16, "global_batch": 64}


@pytest.mark.parametrize(
    ("framework", "selective", "layers"),
    [("torchtitan", True, 0), ("maxtext", False, -1), ("levanter", False, -1), ("megatron-core", False, 0)],
)
def test_recomputation(framework: str, selective: bool, layers: int) -> None:
    layout = resolve(Job(**JOB, framework=framework)).layout
    assert bool(layout.selective) is selective
    assert (layout.recompute_layers != 0) is (layers != 0)


@pytest.mark.parametrize("framework", ["torchtitan", "huggingface", "nemo-automodel", "maxtext", "torchtune"])
def test_context_parallel_ranks_gather_keys(framework: str) -> None:
    """accelerate's cp_comm_strategy, Automodel's cp_rotate_method, MaxText's context_parallel_strategy."""
    report = distsim.comm(**{**JOB, "zero": 3}, framework=framework, cp=2)
    exchanged = {row.op for row in report.collectives if row.purpose == "context parallel" and row.phase == "forward"}
    assert exchanged == {"all_gather"}


def test_what_keeps_no_master_copy() -> None:
    """litgpt's recipes train in bf16-true: eight bytes a parameter, not sixteen."""
    held = distsim.memory("llama-3.2-1b", gpus=8, framework="litgpt").worst.states
    assert held.parameters + held.gradients + held.optimizer == pytest.approx(8 * held.dense_parameters, rel=1e-3)


def test_automodel_reduces_after_the_last_micro_batch() -> None:
    """defer_fsdp_grad_sync is on by default: gradients wait unsharded for the last of four."""
    usual, each = (distsim.comm(**JOB, framework="nemo-automodel", no_sync=word) for word in (None, False))
    calls = [sum(r.calls for r in one.collectives if r.op == "reduce_scatter") for one in (usual, each)]
    assert calls[1] == 4 * calls[0]
    peaks = [distsim.memory(**JOB, framework="nemo-automodel", no_sync=word).peak for word in (None, False)]
    assert peaks[0] > peaks[1] + 8.03e9  # the unsharded gradients, less a layer's
    for notes, deferred in (("fsdp2 prefetch, defer_fsdp_grad_sync false", False), ("fsdp2 prefetch", None)):
        assert reduces_once(Run({"notes": notes}, 2)) is deferred


@pytest.mark.parametrize("framework", ["huggingface", "deepspeed"])
def test_searches_of_two_stacks(framework: str) -> None:
    """Biases by distance are summed over all layers: in an array of layouts their bytes are an array."""
    found = distsim.search("t5-base", gpu="h100-sxm", gpus=8, framework=framework, global_batch=64)
    assert found.best and found.best[0].report.memory.fits


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface"])
@pytest.mark.parametrize("zero", [1, 2])
def test_deepspeed_joins_and_widens_the_shard_of_its_gradients(framework: str, zero: int) -> None:
    """stage_1_and_2.py, step: six bytes for each element of the rank's own half beside its states and gradients, when
    the other half's gradients are gone, and buckets with them."""
    job = {"model": "llama-7b", "gpu": "h200-sxm", "gpus": 2, "zero": zero, "seq": 512, "precision": "bf16"}
    wide, narrow = (distsim.memory(**job, framework=framework, offload=word).worst for word in (None, "optimizer"))
    own = 6738415616 / 2
    (step,) = [moment for moment in wide.moments if moment.name == "optimizer step"]
    gone = 2 * own * (zero == 1) + 2e9 * (framework == "deepspeed")
    assert step.activations == pytest.approx(6 * own - gone, rel=1e-3)
    assert wide.peak_moment == "optimizer step" or zero == 1
    assert narrow.peak < wide.peak - 6 * own


@pytest.mark.parametrize("zero", [0, 1])
def test_megatron_cuts_gradients_of_the_first_stage_alone(zero: int) -> None:
    """distributed_data_parallel.py turns bucketing off on pipeline stages behind the first."""
    report = distsim.comm("llama-7b", gpu="h100-sxm", gpus=64, tp=2, pp=4, zero=zero, global_batch=128)
    calls = [sum(row.calls for row in rows if row.purpose == "gradients") for rows in report.stages]
    assert calls[0] > 10 and calls[1:] == [1, 1, 1]
