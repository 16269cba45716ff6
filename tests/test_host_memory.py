"""Offloading needs memory of hosts: counted by hand, held against what nodes have, by all that tells what fits."""

from __future__ import annotations

from typing import Any

import pytest

from distsim import catalog, memory, step
from distsim.engine.advice.mend import mend
from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.memory import memory_of
from distsim.errors import DistsimError
from distsim.report.host_memory import host_lines
from distsim.report.style import Style
from distsim.specs.job import Job
from distsim.units import GIGA

PARAMETERS = 405_853_388_800
"""Of Llama 3.1 405B."""
JOB: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": "h100-sxm", "gpus": 8, "zero": 3, "seq": 8192,
                       "framework": "deepspeed", "recompute": "full"}  # fmt: skip


def test_states_in_host_memory_are_what_the_gpus_no_longer_hold() -> None:
    """bf16 weights and gradients, fp32 master copy and two states: 16 bytes a parameter, all of them on one node, and
    beside the master copy fp32 gradients that only the host has."""
    report = memory(**JOB, offload="optimizer,parameters")
    assert report.node_bytes == pytest.approx((16 + 4) * PARAMETERS, rel=1e-3)
    assert report.setup.cluster.host_memory == 2048 * GIGA
    assert report.headroom > 0
    assert not report.fits
    assert not report.fits_hosts
    told = report.to_dict()
    assert (told["node_bytes"], told["node_capacity"], told["fits"]) == (report.node_bytes, 2048 * GIGA, False)
    assert "node_bytes" not in memory("llama-7b").to_dict()


@pytest.mark.parametrize(("zero", "batch", "each"), [(1, 8, 18), (1, 16, 18), (2, 8, 18), (2, 16, 20), (3, 8, 18)])
def test_deepspeeds_optimizer_in_host_memory(zero: int, batch: int, each: int) -> None:
    """Master copy, moments and their fp32 gradients; parameters in 16 bits, which ZeRO 3 has on the GPU alone, and the
    gradients that micro-batches sum up, where there are several, under ZeRO 3 in any case."""
    report = memory("llama-7b", gpus=8, framework="deepspeed", zero=zero, offload="optimizer", global_batch=batch)
    assert report.node_bytes == pytest.approx(each * 6738415616, rel=1e-3)


def test_nodes_share_what_the_ranks_share() -> None:
    """Eight times the GPUs leave each node an eighth; activations copied there are those in flight."""
    nodes = [memory(**{**JOB, "gpus": gpus}, offload="optimizer,parameters") for gpus in (8, 64)]
    assert nodes[0].node_bytes == pytest.approx(8 * nodes[1].node_bytes, rel=1e-3)
    assert nodes[1].fits
    plain = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 8, "zero": 3, "framework": "torchtitan", "seq": 8192}
    kept = memory(**plain).worst.saved.layers
    assert memory(**plain, offload="activations").node_bytes == pytest.approx(8 * kept)


def test_a_cluster_that_does_not_say_what_it_has_is_told() -> None:
    unsaid = catalog.load("clusters", "dgx-h100").model_copy(update={"host_memory": None})
    job = Job(**JOB, offload="optimizer,parameters")
    report = memory_of(resolve(job, {"cluster": unsaid}))
    assert report.fits
    assert host_lines(report, Style(80, 0, False)) == [
        "host memory 7,559.61 GiB per node; dgx-h100 does not state its capacity"
    ]
    (line,) = host_lines(memory_of(resolve(job)), Style(80, 0, False))
    assert line == "host memory 7,559.61 GiB of 1,907.35 GiB per node of dgx-h100: does not fit"


def test_mends_and_searches_keep_to_it() -> None:
    for one in mend(memory(**JOB, offload="optimizer,parameters")).fitting:
        assert one.report.fits_hosts
    bounds = parse_bounds({"micro_batch": "1", "recompute": "full", "zero": "3"}, [])
    job = Job(**{**JOB, "zero": None, "gpus": None, "recompute": None}, offload="optimizer,parameters", global_batch=64)
    with pytest.raises(DistsimError, match=r"more than the 1,907\.35 GiB of host memory of a .* node"):
        search(Request(job, (8,), bounds, top=1))
    best = search(Request(job, (64,), bounds, top=1)).best[0]
    assert best.report.memory.fits_hosts
    assert step(**{**JOB, "gpus": 64}, offload="optimizer,parameters").memory.node_bytes <= 2048 * GIGA


def test_a_part_of_a_node_needs_what_its_ranks_hold() -> None:
    """Shards on two of eight GPUs are as many bytes as on all."""
    job: dict[str, Any] = {"model": "llama-7b", "gpu": "h100-sxm", "zero": 3, "framework": "deepspeed"}
    part, whole = (memory(**job, offload="optimizer", gpus=gpus).node_bytes for gpus in (2, 8))
    assert part == pytest.approx(whole, rel=1e-3)
