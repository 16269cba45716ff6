"""Mends that move states off the GPU, or train otherwise: only where a framework can, and computed like all others."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.advice.changes import changes
from distsim.engine.advice.mend import mend
from distsim.engine.jobs.resolve import resolve
from distsim.specs.job import Job

ALONE: dict[str, Any] = {"model": "llama-2-7b", "gpu": "a100-sxm4-40gb", "gpus": 1, "seq": 2048, "recompute": "full"}


def offered(**options: Any) -> dict[str, Any]:
    return {one.flags: one for one in mend(distsim.memory(**{**ALONE, **options})).fitting}


def families(**options: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for change in changes(resolve(Job.read({**ALONE, **options}))):
        found.setdefault(change.family, []).append(change.shown)
    return found


def test_a_job_that_does_not_fit_may_leave_its_states_to_the_host() -> None:
    found = offered(framework="deepspeed")
    peak = found["--offload optimizer"].report.peak
    assert peak == distsim.memory(**ALONE, framework="deepspeed", offload="optimizer").peak
    assert "--lora-rank 16" in found


@pytest.mark.parametrize(
    ("framework", "offload", "trains"),
    [
        ("huggingface", 3, {"precision", "adapters"}), ("litgpt", 3, {"precision", "adapters"}),
        ("deepspeed", 3, {"adapters"}), ("megatron-core", 2, set()), ("nanotron", 0, set()), ("torchtitan", 3, set()),
    ],
)  # fmt: skip
def test_a_framework_is_told_of_what_it_has(framework: str, offload: int, trains: set[str]) -> None:
    found = families(framework=framework, precision="bf16")
    assert len(found.get("offload", [])) == offload
    assert trains == {"precision", "adapters"} & set(found)


def test_a_larger_accelerator_does_not_end_the_search_for_what_costs_nothing() -> None:
    """No single change but a larger GPU is enough here; two that cost no money are."""
    job = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 64, "ep": 8, "micro_batch": 2, "seq": 8192,
           "global_batch": 512, "precision": "fp8"}  # fmt: skip
    found = mend(distsim.memory(**job)).fitting
    sizes = [len(one.changes) for one in found]
    assert found[0].shown == {"zero": 2, "micro_batch": 1, "global_batch": 512} and max(sizes) == 2
    assert not any({"gpu", "gpus"} & set(one.shown) for one in found), "money is a last resort"
    assert [one.effort for one in found] == sorted(one.effort for one in found)


def test_what_is_there_already_is_not_offered() -> None:
    assert "adapters" not in families(framework="huggingface", lora_rank=8)
    assert "precision" not in families(framework="huggingface", precision="pure-bf16")
    assert {"offload": "optimizer,activations"} in families(framework="deepspeed", offload="optimizer")["offload"]


def test_accelerators_that_somebody_sells_come_first() -> None:
    """141 GB: an H200 is for rent, a GH200 of that size is in no price list."""
    names = [shown["gpu"] for shown in families(framework="deepspeed")["gpu"]]
    sold = {offer.gpu for name in catalog.names("prices") for offer in catalog.load("prices", name).offers}
    assert "h200-sxm" in names and [name in sold for name in names] == sorted(name in sold for name in names)[::-1]
    assert "--gpu h200-sxm" in offered(framework="deepspeed")


def test_a_larger_gpu_brings_its_cluster_where_one_is_stated() -> None:
    report = distsim.memory("llama-3-8b", cluster="dgx-a100-80gb", gpus=1)
    assert any("--gpu b200-sxm --cluster dgx-b200" in one.flags for one in distsim.advise(report))


def test_mixtures_that_refuse_tensor_parallelism() -> None:
    with pytest.raises(distsim.DistsimError, match="no tensor parallelism for mixtures"):
        distsim.step("mixtral-8x7b", gpu="h100-sxm", gpus=64, framework="nemo-automodel", tp=2)
