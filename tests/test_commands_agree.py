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
