"""States on NVMe drives (ZeRO-Infinity): bytes by hand, times at the drives' rates, what refuses and what fits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import distsim
from distsim import catalog, comm, memory, step
from distsim.cli.app import run
from distsim.engine.advice.mend import mend
from distsim.engine.exchanges.offloading import READ, WRITE
from distsim.engine.jobs.drives import drive_rates, node_rates
from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.memory import memory_of
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.report.host_memory import host_lines
from distsim.report.style import Style
from distsim.specs.job import Job
from distsim.units import GIGA

PARAMETERS = 70_553_706_496
"""Of Llama 3.1 70B."""
JOB: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "a100-sxm4-80gb", "gpus": 8, "zero": 3, "seq": 4096,
                       "framework": "deepspeed", "recompute": "full", "global_batch": 16}  # fmt: skip
BOTH = {"offload": "optimizer,parameters", "offload_to": "nvme"}
BUFFERS = 8 * (4 * 4 * 1e9 + 5 * 1e8 * 2)
"""Of eight ranks: four fp32 buffers of a sub-group, five of parameters."""


def test_what_is_on_drives_and_what_in_memory() -> None:
    """Master copy, two moments and fp32 gradients go to drives, and parameters beyond 1e9 a rank; gradients of 16 bits,
    the other parameters and buffers are in memory."""
    report = memory(**JOB, **BOTH)
    kept = 8 * 1e9
    assert report.drive_bytes == pytest.approx(16 * PARAMETERS + 2 * (PARAMETERS - kept), rel=1e-4)
    assert report.node_bytes == pytest.approx(2 * PARAMETERS + 2 * kept + BUFFERS, rel=1e-4)
    assert report.peak == memory(**JOB, offload="optimizer,parameters").peak
    told = report.to_dict()
    assert (told["drive_bytes"], told["drive_capacity"]) == (report.drive_bytes, 30_720 * GIGA)
    assert "drive_bytes" not in memory(**JOB, offload="optimizer,parameters").to_dict()


def test_small_models_stay_in_memory_but_for_their_states() -> None:
    """Up to 1e9 parameters of each rank are not swapped, so nothing of them crosses to drives."""
    small = {**JOB, "model": "llama-3.2-3b"}
    purposes = {row.purpose for row in comm(**small, **BOTH).collectives if row.op in (READ, WRITE)}
    assert purposes == {"gradients to drives", "states, gradients from drives", "states to drives"}
    assert memory(**small, **BOTH).drive_bytes == pytest.approx(16 * distsim.load_model("llama-3.2-3b").parameters)


def test_what_crosses_to_drives_and_back() -> None:
    """Per step 4 bytes of gradients out and back, 12 of states in and out; parameters come twice for each micro-batch
    and go once."""
    found = {(row.purpose, row.phase): row for row in comm(**JOB, **BOTH).collectives if row.op in (READ, WRITE)}
    rank, share = PARAMETERS / 8, 1 - 1e9 * 8 / PARAMETERS
    assert {key: float(row.calls * row.bytes_per_call / rank) for key, row in found.items()} == {
        ("gradients to drives", "backward"): pytest.approx(4, rel=1e-4),
        ("states, gradients from drives", "step"): pytest.approx(16, rel=1e-4),
        ("states to drives", "step"): pytest.approx(12, rel=1e-4),
        ("parameters from drives", "forward"): pytest.approx(2 * 2 * share, rel=1e-4),
        ("parameters from drives", "backward"): pytest.approx(2 * 2 * share, rel=1e-4),
        ("parameters to drives", "step"): pytest.approx(2 * share, rel=1e-4),
    }
    out = sum(row.calls * row.bytes_per_call for row in found.values() if row.op == WRITE and row.purpose[0] != "p")
    back = sum(row.calls * row.bytes_per_call for row in found.values() if row.op == READ and row.purpose[0] != "p")
    assert out == pytest.approx(back)  # whatever is read had been written
    assert comm(**JOB, **BOTH).wire_bytes_per_rank == comm(**JOB, offload="optimizer,parameters").wire_bytes_per_rank


def test_times_are_those_of_the_drives() -> None:
    """Eight drives of generation 4 read 48 GB/s and write 32, of which three quarters are reached, shared by eight."""
    setup = resolve(Job(**JOB, **BOTH))
    assert node_rates(setup.cluster, 4) == (48e9, 32e9)
    assert [float(rate) for rate in drive_rates(setup)] == pytest.approx([4.5e9, 3e9])
    swapped, kept = step(**JOB, **BOTH), step(**JOB, offload="optimizer,parameters")
    rank = PARAMETERS / 8
    waited = 16 * rank / 4.5e9 + 12 * rank / 3e9
    assert swapped.seconds - kept.seconds > waited
    assert swapped.breakdown["offload"] > waited
    assert sum(swapped.breakdown.values()) == pytest.approx(swapped.seconds)


def test_faster_drives_and_more_nodes_are_quicker() -> None:
    cluster = catalog.load("clusters", "dgx-a100-80gb")
    twice = cluster.model_copy(update={"storage": cluster.storage.model_copy(update={"drives": 16})})
    job = Job(**JOB, **BOTH)
    rates = [drive_rates(resolve(job, {"cluster": one})) for one in (cluster, twice)]
    assert [2 * float(one) for one in rates[0]] == pytest.approx([float(one) for one in rates[1]])
    nodes = [step(**{**JOB, "gpus": gpus, "global_batch": gpus}, **BOTH).seconds for gpus in (8, 16, 32)]
    assert nodes[0] > nodes[1] > nodes[2]


def test_stated_rates_go_first_and_writes_are_no_faster_than_reads() -> None:
    assert node_rates(catalog.load("clusters", "a3-highgpu-8g"), 5) == (6.24e9, 3.12e9)
    assert node_rates(catalog.load("clusters", "p4d.24xlarge"), 4) == (16e9, 16e9)
    assert node_rates(catalog.load("clusters", "dgx-2"), 3) == (8 * 3.2e9, 8 * 3.1e9)
    assert node_rates(catalog.load("clusters", "dgx-h100"), 5) == (50e9, 40e9)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"framework": "torchtitan", "offload": "optimizer,parameters"}, "torchtitan does not offload to NVMe drives"),
        ({"zero": 1, "offload": "optimizer"}, "needs ZeRO 3, but --zero is 1"),
        ({"offload": "activations"}, "no effect on activations"),
        ({"gpu": "rtx-4090", "gpus": 1, "offload": "optimizer"}, "does not state its NVMe drives"),
        ({"offload": "none"}, "has no effect without --offload"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DistsimError, match=problem):
        memory(**{**JOB, "offload_to": "nvme", **options})


def test_any_software_may_when_none_is_named() -> None:
    plain = {name: value for name, value in JOB.items() if name != "framework"}
    assert memory(**plain, **BOTH).drive_bytes > 16 * PARAMETERS


def test_full_drives_do_not_fit() -> None:
    cluster = catalog.load("clusters", "dgx-a100-80gb")
    tiny = cluster.model_copy(update={"storage": cluster.storage.model_copy(update={"capacity": 10**12})})
    report = memory_of(resolve(Job(**JOB, **BOTH), {"cluster": tiny}))
    assert report.headroom > 0
    assert not report.fits
    lines = host_lines(report, Style(120, 0, False))
    assert lines[0].endswith("fits") and lines[1].startswith("NVMe drives 1,167.85 GiB of 931.32 GiB per node")
    assert lines[1].endswith("does not fit")


def test_mends_and_searches_know_of_drives() -> None:
    """405B on one node of eight H100: its states are more than the host's memory, not than its drives."""
    large = {**JOB, "model": "llama-3.1-405b", "gpu": "h100-sxm", "seq": 8192}
    flags = [one.flags for one in mend(memory(**large)).fitting]
    assert "--offload optimizer,parameters --offload-to nvme" in flags
    bounds = parse_bounds({"micro_batch": "1", "recompute": "full"}, [])
    job = Job(**{**large, "zero": None, "gpus": None, "recompute": None, "global_batch": 8}, **BOTH)
    best = search(Request(job, (8,), bounds, top=1)).best[0]
    assert best.report.memory.fits
    assert best.report.setup.layout.zero == 3
    assert best.report.memory.drive_bytes > 14 * 405e9


def test_searches_take_drives_where_something_goes_there(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["search", "llama-3-8b", "--gpus", "8", "--gpu", "h100-sxm", "--framework", "deepspeed", "--seq", "2048",
            "--global-batch", "8", "--pp", "1", "--cp", "1", "--top", "3", "--json", "--offload"]  # fmt: skip

    def places(*words: str) -> list[str | None]:
        assert run([*line, *words]) == 0
        return [one["layout"].get("offload_to") for one in json.loads(capsys.readouterr().out)["layouts"]]

    both = places("none,optimizer+parameters", "--offload-to", "nvme")
    assert both[0] is None and set(both) == {None, "nvme"}  # the best leaves all on the GPU, the smallest do not
    assert set(places("optimizer", "--offload-to", "nvme")) == {"nvme"}
    assert places("none,optimizer", "--offload-to", "cpu")[0] is None
    for place in ("nvme", "cpu"):
        assert run([*line, "none", "--offload-to", place]) == 2
        assert "has no effect without --offload" in capsys.readouterr().err


def test_replays_read_nvme() -> None:
    """Where the cell says so, and what the cluster's drives do is known; else host memory, which the replay says."""
    cells = {"id": "x", "source": "s", "model": "llama-3.1-70b", "gpu": "a100-sxm4-80gb", "n_gpus": "8",
             "gpus_per_node": "8", "seq_len": "4096", "micro_batch": "1", "zero_stage": "3", "framework": "deepspeed",
             "precision": "bf16", "offload": "optimizer nvme", "step_time_s": "100"}  # fmt: skip
    assert setup_of(Run(cells, 2)).drives == ("optimizer",)
    assert setup_of(Run(cells | {"offload": "nvme"}, 2)).drives == ("optimizer", "parameters")
    assert setup_of(Run(cells | {"offload": "optimizer"}, 2)).drives == ()


def test_the_api_says_where_states_are() -> None:
    report = distsim.memory(Job(**JOB, **BOTH))
    assert report.to_dict()["job"]["offload_to"] == "nvme"
    assert replace(report.setup, job=Job(**JOB)).drives == ()
