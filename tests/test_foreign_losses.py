"""Which losses a framework's users can take, which are refused there, and what that does to advice."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.engine.advice.mend import mend
from distsim.engine.jobs.foreign_losses import foreign_loss
from distsim.engine.jobs.framework_notes import beyond_default
from distsim.engine.jobs.resolve import resolve
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.loss_notes import loss_of
from distsim.specs.framework import Framework
from distsim.specs.job import Job
from distsim.units import GIB

LONG: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": 8, "zero": 3, "recompute": "full"}


@pytest.mark.parametrize(
    ("framework", "more", "whole", "patched"),
    [("deepspeed", {"seq": 1_000_000, "cp": 8, "mlp_tiles": "auto"}, 243.61, 62.45),
     ("fsdp", {"seq": 32_768}, 98.73, 35.24)],
)  # fmt: skip
def test_long_contexts_are_told_of_a_loss_before_larger_gpus(
    framework: str, more: dict[str, Any], whole: float, patched: float
) -> None:
    """All that DeepSpeed's users had been told was to take B300s."""
    report = distsim.memory(**LONG, **more, framework=framework)
    first = mend(report).fitting[0]
    assert first.flags == "--loss liger" and report.peak / GIB == pytest.approx(whole, abs=0.01)
    assert first.report.peak / GIB == pytest.approx(patched, abs=0.01)


def test_a_model_that_no_patch_knows_is_offered_the_loss_alone() -> None:
    report = distsim.memory("gpt2-xl", gpus=1, framework="fsdp", micro_batch=64)
    offered = [one.flags for one in mend(report).fitting]
    assert any("--loss fused-linear" in flags for flags in offered)
    assert not any("--loss liger" in flags for flags in offered)


@pytest.mark.parametrize("name", catalog.names("frameworks"))
def test_losses_that_are_offered_are_taken_and_all_have_sources(name: str) -> None:
    framework: Framework = catalog.load("frameworks", name)
    supports = framework.supports
    assert all(foreign_loss(framework, loss) == ("", "") for loss in supports.losses)
    if supports.losses:
        assert framework.source.get("supports.losses") or "loss" in framework.source["supports"].lower()
    for figure in ("patched", "calls_triton"):
        assert getattr(supports, figure) or framework.source.get(f"supports.{figure}"), figure


OWN = ("megatron-core", "nemo", "megatron-bridge", "megatron-deepspeed", "torchtitan", "kempnerforge", "torchtune",
       "litgpt", "nanotron", "fms-fsdp", "flash-attn", "olmo-core")  # fmt: skip


@pytest.mark.parametrize("framework", OWN)
def test_patches_of_other_models_are_refused(framework: str) -> None:
    """Code of one's own may call the loss alone."""
    job = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "framework": framework}
    for loss in ("liger", "foak", "foak-liger"):
        with pytest.raises(
            DistsimError, match=f"--loss {loss} patches models of transformers, and {framework} has its"
        ):
            resolve(Job(**job, loss=loss))
    for loss in ("fused-linear", "cut"):
        assert resolve(Job(**job, loss=loss)).kernels.loss in ("with-head", "cut")


@pytest.mark.parametrize("framework", ["maxtext", "paxml", "axlearn", "t5x", "levanter", "tensorflow", "alpa"])
@pytest.mark.parametrize("loss", ["liger", "cut", "cce", "fused-linear"])
def test_kernels_for_programs_of_torch_are_refused_by_others(framework: str, loss: str) -> None:
    with pytest.raises(DistsimError, match=f"--loss {loss} is of kernels in Triton") as told:
        resolve(Job(model="llama-3-8b", gpu="h100-sxm", gpus=8, framework=framework, loss=loss))
    assert any(hint.startswith("source: ") for hint in told.value.hints)


def test_what_the_default_framework_does_not_take_is_told() -> None:
    told = beyond_default(resolve(Job(model="llama-3-8b", gpus=8, loss="liger")))
    words = "--loss liger patches models of transformers, and megatron-core has its own"
    assert told == [f"{words}; computed anyway, as no --framework is given"]
    assert not beyond_default(resolve(Job(model="llama-3-8b", gpus=8, loss="cut")))


def test_offers_do_not_change_what_notes_of_runs_mean() -> None:
    """A fused cross entropy is the cut one only where a library has no other."""
    run = Run({"notes": "fused cross entropy"}, 2)
    assert loss_of(run, ["cut"]) == "cut"
    for name in ("deepspeed", "fsdp", "torch-ddp", "plain-torch"):
        framework: Framework = catalog.load("frameworks", name)
        assert "cut" in framework.supports.losses and loss_of(run, framework.supports.losses) is None
