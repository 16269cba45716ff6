"""Chips that have one memory with their host, to which nothing can be offloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

import distsim
from distsim import catalog
from distsim.engine.jobs.resolve import resolve
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.specs.job import Job

SHARED = [name for name in catalog.names("gpus") if (host := catalog.load("gpus", name).host) and host.kind == "shared"]


def test_which_they_are() -> None:
    assert {"gb10", "mi300a"} <= set(SHARED)


@pytest.mark.parametrize("gpu", SHARED)
@pytest.mark.parametrize(
    "more", [{"offload": "optimizer"}, {"offload": "optimizer,parameters", "zero": 3}, {"offload": "activations"}]
)
def test_what_would_free_nothing_is_refused(gpu: str, more: dict[str, object]) -> None:
    with pytest.raises(DistsimError, match=f"{gpu} and its host have one memory") as refused:
        distsim.memory("llama-7b", gpu=gpu, **more)
    assert "leave --offload out" in str(refused.value)
    with pytest.raises(DistsimError, match="one memory"):
        setup_of(Run({"model": "llama-7b", "gpu": gpu, "n_gpus": "1", "seq_len": "2048", "micro_batch": "1",
                      "zero_stage": "3", "framework": "deepspeed", "offload": str(more["offload"])}, 1))  # fmt: skip


def test_policies_that_offload_are_refused_likewise() -> None:
    job = {"model": "llama-7b", "gpu": "mi300a", "framework": "maxtext"}
    with pytest.raises(DistsimError, match="one memory: --remat-policy minimal_offloaded frees none"):
        distsim.memory(**job, remat_policy="minimal_offloaded")
    assert distsim.memory(**job, remat_policy="minimal").setup.offload == ()
    for name in catalog.names("frameworks"):
        framework = catalog.load("frameworks", name)
        assert not (framework.remat and framework.defaults.get("offload"))


def test_what_software_offloads_of_itself_stays_in_that_memory() -> None:
    job = {"model": "llama-7b", "framework": "unsloth", "lora_rank": 16, "recompute": "full", "gpus": 1}
    assert resolve(Job(**job, gpu="h100-sxm")).offload == ("activations",)
    shared = resolve(Job(**job, gpu="gb10"))
    assert shared.offload == () and shared.origins["offload"] == "default"
    kept, moved = (distsim.memory(**job, gpu=gpu, seq=8192, micro_batch=4).peak for gpu in ("gb10", "h100-sxm"))
    assert kept == distsim.memory(**job, gpu="gb10", seq=8192, micro_batch=4, offload="none").peak
    assert kept > moved + 0.9 * 32 * 4 * 8192 * 4096 * 2  # the inputs of layers


def test_a_card_of_ones_own_may_be_such(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        """
name = "own-apu"
vendor = "AMD"
architecture = "cdna3"
memory = "128 GiB"
bandwidth = "5 TB/s"
default_cluster = "server-4x-mi300a"
[peak]
bf16 = "900 TFLOP/s"
[host]
kind = "shared"
[source]
other = "a test"
checked = 2026-11-29
"""
    )
    with pytest.raises(DistsimError, match="own-apu and its host have one memory"):
        distsim.memory("llama-7b", gpu=str(file), offload="optimizer")
    assert distsim.memory("llama-7b", gpu=str(file)).peak > 0
