"""What is kernels of Triton is neither computed nor proposed on chips that Triton does not take."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.architectures import traits_of
from distsim.engine.advice.changes import changes
from distsim.engine.advice.quicker import changes as quicker
from distsim.engine.jobs.resolve import resolve
from distsim.errors import DistsimError
from distsim.specs.job import Job

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpus": 1, "seq": 512, "framework": "huggingface"}
PASCAL = ["gtx-1070-ti", "gtx-1080-ti", "p100-pcie-16gb", "p100-sxm2-16gb"]


def proposed(gpu: str) -> set[tuple[str, Any]]:
    setup = resolve(Job(**JOB, gpu=gpu))
    found = [one.shown for one in changes(setup)] + [options for _, _, options in quicker(setup)]
    return {(name, value) for one in found for name, value in one.items() if name in ("compile", "loss")}


@pytest.mark.parametrize("gpu", PASCAL)
def test_older_chips_are_proposed_no_kernels_of_triton(gpu: str) -> None:
    assert proposed(gpu) == {("loss", "chunked-nll")}
    assert {("loss", "liger"), ("compile", True)} <= proposed("v100-sxm2-16gb")


@pytest.mark.parametrize("gpu", PASCAL)
def test_what_is_asked_for_is_refused(gpu: str) -> None:
    with pytest.raises(DistsimError, match=rf"torch.compile does not run on {gpu}: Triton"):
        distsim.step(**JOB, gpu=gpu, compile=True)
    with pytest.raises(DistsimError, match=rf"loss liger does not run on {gpu}: Triton"):
        distsim.memory(**JOB, gpu=gpu, loss="liger")
    assert distsim.step(**JOB, gpu=gpu, loss="chunked-nll", compile=False).seconds > 0
    assert distsim.step(**JOB, gpu="v100-sxm2-16gb", compile=True).seconds > 0


def test_a_framework_that_compiles_by_default_is_told_of() -> None:
    job = {**JOB, "framework": "torch-compile"}
    notes = {gpu: distsim.step(**job, gpu=gpu).notes for gpu in ("gtx-1080-ti", "v100-sxm2-16gb")}
    told = {gpu: any("torch.compile does not run" in note for note in found) for gpu, found in notes.items()}
    assert told == {"gtx-1080-ti": True, "v100-sxm2-16gb": False}


def test_chips_of_nvidia_before_volta_alone_are_left_out() -> None:
    left = {name for name in catalog.names("gpus") if not traits_of(catalog.load("gpus", name)).triton}
    assert set(PASCAL) == {name for name in left if catalog.load("gpus", name).architecture == "pascal"} == left
