"""What searches and plans find is what the command that they print says of it."""

from __future__ import annotations

from typing import Any

import pytest

import distsim

HOSTED: dict[str, Any] = {"model": "llama-2-70b", "cluster": "dgx-h100", "gpus": 64, "seq": 4096, "tp": 4, "pp": 4,
                          "zero": 1, "micro_batch": 1, "recompute": "none", "offload": "optimizer"}  # fmt: skip


@pytest.mark.parametrize("software", [{}, {"framework": "megatron-core"}])
def test_an_optimizer_in_host_memory_takes_as_long_in_a_search_as_in_a_step(software: dict[str, str]) -> None:
    """A search that bounds what the default framework has not let more through than was asked for: its states."""
    asked = {**HOSTED, **software, "global_batch": 256}
    best = distsim.search(**asked, vpp=5).best[0]
    step = distsim.step(**{**asked, **best.options})
    assert best.report.seconds == step.seconds and best.report.peak_memory == step.peak_memory


@pytest.mark.parametrize("software", [{}, {"framework": "megatron-core"}])
def test_an_optimizer_in_host_memory_takes_as_long_in_a_plan_as_in_a_step(software: dict[str, str]) -> None:
    asked = {**HOSTED, **software, "global_batch": 256}
    option = distsim.plan(tokens="1T", price="2.5", vpp=5, **asked).options[0]
    layout = option.candidate.layout
    step = distsim.step(**asked, vpp=5, zero_group=layout["zero_group"], sequence_parallel=layout["sequence_parallel"])
    assert option.candidate.step_seconds == step.seconds


def test_what_a_refusal_offers_to_offload_works_in_every_command() -> None:
    """A search takes what a comma parts as choices, so that it refused what its own error told to type."""
    job: dict[str, Any] = {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 8, "framework": "fsdp", "zero": 3}
    with pytest.raises(distsim.DistsimError, match="together, not one without the other") as refused:
        distsim.search(**job, offload=["optimizer", "parameters"])
    offered = refused.value.hints[0].partition("--offload ")[2]
    assert offered == "optimizer+parameters"
    best = distsim.search(**job, offload=offered, global_batch=64).best[0]
    step = distsim.step(**{**job, **best.options, "offload": offered})
    assert step.setup.offload == ("optimizer", "parameters") and step.seconds == best.report.seconds


def test_a_search_says_that_a_comma_parts_what_is_offloaded() -> None:
    job: dict[str, Any] = {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 8, "framework": "deepspeed", "zero": 3}
    told = "tries each by itself: --offload optimizer+parameters moves them together"
    for offload, noted in ((["optimizer", "parameters"], True), (["none", "optimizer"], False)):
        assert any(told in note for note in distsim.search(**job, offload=offload, top=1).notes) is noted
