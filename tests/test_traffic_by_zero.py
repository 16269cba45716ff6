"""The table of ``comm`` that holds a job's data parallel traffic beside the same job at other ZeRO stages."""

from collections import Counter
from typing import Any

import pytest

import distsim
from distsim.engine.traffic_compare import sync_cost, zero_traffic
from distsim.report.comm import zero_lines

OPTIONS: list[dict[str, Any]] = [
    {"framework": "fsdp", "zero": 2, "no_sync": True},
    {"framework": "fsdp", "zero": 3, "no_sync": False},
    {"framework": "torch-ddp", "no_sync": False},
    {"sync": "local-sgd", "sync_every": 100},
    {"sync": "local-sgd", "sync_every": 100, "sync_gbps": 1.0},
    {"sync": "local-sgd", "sync_every": 10, "zero": 2, "zero_group": 8},
    {"sync": "parameter-server"},
    {"sync": "parameter-server", "servers": 4},
    {"compress": "1bit"},
    {"compress": "powersgd-r4"},
    {"compress": "bf16", "precision": "amp-bf16"},
    {"zero": 3, "zeropp": "qwz,hpz,qgz"},
    {"zero": 3, "zeropp": "qwz"},
    {"zero": 2, "offload": "optimizer"},
    {"zero": 1, "tp": 2},
]
WORDS = {"gradients", "gradients of replicas", "parameters", "buffers", "replicas averaged", "gradients pushed",
         "parameters pulled", "gradient signs", "scales", "low-rank factors", "gradients of vectors",
         "gradients inside the node", "gradients between nodes"}  # fmt: skip
"""What people read of data parallel rows."""


def job(**options: Any) -> Any:
    return distsim.comm("llama-3-8b", gpu="h100", gpus=16, seq=4096, global_batch=64, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: " ".join(f"{k}={v}" for k, v in one.items()))
def test_starred_row_is_the_job(options: dict[str, Any]) -> None:
    report = job(**options)
    rows = [row for row in report.collectives if row.purpose in WORDS]
    starred = zero_traffic(report)[report.setup.layout.zero]
    assert starred.wire_bytes == pytest.approx(sum(row.wire_bytes_per_rank for row in rows)) and starred.wire_bytes > 0
    assert starred.seconds == pytest.approx(sum(row.seconds for row in rows))
    assert not starred.without


def test_an_option_stays_where_it_holds_and_is_told_where_not() -> None:
    found = zero_traffic(job(compress="1bit", no_sync=False))
    assert [one.without for one in found] == [(), *(("--compress 1bit",),) * 3]
    each = zero_traffic(job(no_sync=False))
    assert [one.wire_bytes for one in found[1:]] == [one.wire_bytes for one in each[1:]]  # still after each micro-batch
    assert "ZeRO 1, 2, 3: without --compress 1bit" in zero_lines(found, 0, forward=False, stays=False)
    replicas = {"sync": "local-sgd", "sync_every": 10}
    assert all(not one.without for one in zero_traffic(job(zero=2, zero_group=8, **replicas)))
    assert [one.without for one in zero_traffic(job(**replicas))][1:] == [("--sync local-sgd",)] * 3


def test_putting_off_saves_what_variants_send() -> None:
    """Signs after each of four micro-batches are four times the signs."""
    cost = sync_cost(job(compress="1bit", no_sync=True))
    assert cost is not None and cost.each_bytes == pytest.approx(4 * cost.once_bytes)


def test_stages_are_held_against_an_all_reduce_that_the_framework_does_not_run() -> None:
    """DeepSpeed all-reduces the buckets of ZeRO 1 and 2 and gathers parameters after the step, 3 M in all, against
    which ZeRO 3 had looked free."""
    report = distsim.comm("t5-11b", gpus=16, zero=2, framework="megatron-deepspeed")
    found = zero_traffic(report)
    assert found[0].problem and not found[0].elements
    moved = [one.elements / found[0].unsharded for one in found[1:]]
    assert moved == pytest.approx([1.5, 1.5, 1.5], rel=0.01)
    told = zero_lines(found, 2, forward=False, stays=False)
    assert "elements relative to ZeRO 0" in told[0]
    assert [line.split()[:6] for line in told if line.startswith("2 *")] == [
        ["2", "*", "after", "the", "step", "all-reduced"]
    ]
    assert ["to owners" in line for line in told if line[:2] in ("1 ", "2 ", "3 ")] == [False, False, True]
    assert sum("1.50x" in line for line in told) == 3


def test_nanotron_all_reduces_the_whole_accumulator() -> None:
    """trainer.py, sync_gradients_across_dp with reduce_scatter=False: 4 bytes a parameter, and 2 gathered."""
    report = distsim.comm("llama-7b", gpu="h100-sxm", gpus=16, zero=1, framework="nanotron")
    found: Counter[tuple[str, str]] = Counter()
    for row in report.collectives:
        found[row.purpose, row.op] += row.calls * row.bytes_per_call
    assert found["gradients", "all_reduce"] == pytest.approx(4 * 6_738_415_616)
    assert found["parameters", "all_gather"] == pytest.approx(2 * 6_738_415_616)
