"""OLMo-core: experts by a library's pace, tokens ordered by kernels, gradients that wait only where they are whole."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import catalog
from distsim.interop.runs.software_names import nearest_profile

MIXTURE: dict[str, Any] = {"model": "olmoe-1b-7b", "gpu": "b300", "gpus": 8, "seq": 4096, "micro_batch": 1}


def test_its_name_is_read_however_it_spreads_a_model() -> None:
    assert nearest_profile("FSDP2 (OLMo-core)", split=True) == "olmo-core"


def test_its_experts_are_not_torchtitans() -> None:
    own, titan = (catalog.load("frameworks", name).kernels for name in ("olmo-core", "torchtitan"))
    assert (own.expert_kernel, own.expert_index) == ("library", "fused")
    assert (titan.expert_kernel, titan.expert_index) == ("torch", "indexed")


@pytest.mark.parametrize(("zero", "times"), [(1, 1), (3, 4)])
def test_gradients_wait_for_the_last_micro_batch_where_each_rank_has_all_of_them(zero: int, times: int) -> None:
    """OLMoDDPTrainModule reduces whole gradients once a step; FSDP's shards are made of every micro-batch's."""
    one, four = (distsim.comm(framework="olmo-core", zero=zero, global_batch=batch, **MIXTURE) for batch in (8, 32))
    first, later = (
        [(call.op, call.calls) for call in report.collectives if call.purpose == "gradients"] for report in (one, four)
    )
    assert first and later == [(op, times * calls) for op, calls in first]
    assert {op for op, _ in first} == {"all_reduce" if zero == 1 else "reduce_scatter"}
