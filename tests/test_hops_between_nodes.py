"""Pipelines several of whose stages share a node: only some of their hops cross to another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.engine.exchanges.pipeline import hop_flows
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.step import step_of
from distsim.engine.steps.pass_times import model_times, pass_times
from distsim.engine.steps.timeline import timeline_of
from distsim.engine.steps.work import kinds_of, work_of
from distsim.engine.traffic import comm_of
from distsim.specs.job import Job

CLUSTER = """
name = "slow"
gpu = "rtx-2080-ti"
gpus_per_node = 4
domain = 4
host_memory = "128 GB"
[fabric]
kind = "pcie"
rate = "15.75 GB/s"
[network]
kind = "ethernet"
nics = 1
nic_rate = "RATE"
[source]
other = "ours"
checked = 2026-11-29
"""
JOB: dict[str, Any] = {
    "model": "llama-2-7b", "gpus": 8, "pp": 8, "seq": 1024, "framework": "deepspeed", "micro_batch": 1,
    "global_batch": 16, "zero": 0,
}  # fmt: skip
OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"pp": 4},
    {"gpus": 6, "pp": 6, "global_batch": 6, "model": "gpt2-xl"},
    {"framework": "torchtitan", "precision": "fp16", "schedule": "interleaved-1f1b", "zero": None},
    {"framework": "torchtitan", "precision": "fp16", "schedule": "zb-v", "zero": None},
    {"cluster": "p3.16xlarge", "gpus": 16, "pp": 16, "model": "gpt2-xl"},
)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Nodes of four cards that share 1 Gb/s."""
    return cluster_at(tmp_path_factory.mktemp("slow"), "1 Gb/s")


def cluster_at(folder: Path, rate: str) -> str:
    path = folder / "cluster.toml"
    path.write_text(CLUSTER.replace("RATE", rate), encoding="utf-8")
    return str(path)


def setup_of(**other: Any) -> Setup:
    return resolve(Job.read({name: value for name, value in {**JOB, **other}.items() if value is not None}))


@pytest.mark.parametrize("other", OTHERS)
def test_a_step_has_the_transfers_that_comm_has_of_each_stage(slow: str, other: dict[str, Any]) -> None:
    """What stages are taken to be alike send for equally long."""
    setup = setup_of(**{"cluster": slow, **other})
    comm, work = comm_of(setup), work_of(setup)
    for alike, one in zip(kinds_of(setup), work.stages, strict=True):
        assert one.count == len(alike)
        for stage in alike:
            sent = sum(row.seconds for row in comm.stages[stage.index] if row.op == "send_recv")
            assert one.traffic["pp_forward"] + one.traffic["pp_backward"] == pytest.approx(sent)


def test_the_slow_hop_sets_the_pace(slow: str, tmp_path: Path) -> None:
    """8.39 MB at 125 MB/s are 67 ms, forward from one stage and backward from the next, for each of 16 micro-batches;
    a network of the fabric's own rate shows what the step takes without."""
    found = step_of(setup_of(cluster=slow))
    crossing = {stage.index: stage.traffic["pp_forward"] + stage.traffic["pp_backward"] for stage in found.work.stages}
    assert {place for place, seconds in crossing.items() if seconds > 1} == {3, 4}
    assert crossing[3] == pytest.approx(16 * 8.39e6 / 125e6, rel=0.03)
    quick = cluster_at(tmp_path, "126 Gb/s")
    factor = found.timing.pipeline_factor
    slower = found.seconds / step_of(setup_of(cluster=quick)).seconds
    assert found.seconds * (1 - 1 / slower) > 0.2 * 16 * 0.067 * factor


@pytest.mark.parametrize("pp", [4, 8])
@pytest.mark.parametrize(("schedule", "least", "most"), [("gpipe", 0.999, 1.001), ("1f1b", 0.96, 1.0001)])
def test_composed_and_simulated_agree(slow: str, schedule: str, least: float, most: float, pp: int) -> None:
    """Forwards wait on one side of the slow link and backwards on the other: exact where all forwards come first, else
    the bound that stages of unlike lengths have."""
    report = step_of(
        setup_of(cluster=slow, pp=pp, schedule=schedule, framework="torchtitan", precision="fp16", zero=None)
    )
    assert len({stage.index for stage in report.work.stages}) > 3
    assert least < (report.seconds - timeline_of(report).slack) / report.seconds < most


def test_a_search_ranks_by_the_same_hops(slow: str) -> None:
    """The arrays of a search have what each layout has by itself, pipelines with a slow hop among them."""
    options = {name: value for name, value in JOB.items() if name not in ("model", "pp", "micro_batch", "zero")}
    found = distsim.search("llama-2-7b", cluster=slow, **options, lora_rank=8, pp="4,8", micro_batch=1, top=6)
    depths = {int(one.report.setup.layout.pp) for one in found.best}
    assert depths >= {8} and found.best
    for one in found.best:
        assert one.report.seconds == pytest.approx(one.found.seconds, rel=1e-9)


def test_passes_of_a_model_have_a_hop_of_each_link(slow: str) -> None:
    """Of seven links one crosses; where chunks go around, the last one too; within a node all are alike."""
    hops = model_times("llama-2-7b", 8, 16, None, "1f1b", cluster=slow, seq=1024, framework="deepspeed")["hop"]
    assert [place for place, one in enumerate(hops) if one > 2 * min(hops)] == [3] and len(hops) == 7
    around = pass_times(setup_of(**{"cluster": slow, **OTHERS[3]}))["hop"]
    assert [place for place, one in enumerate(around) if one > 2 * min(around)] == [3, 7]
    assert isinstance(model_times("llama-2-7b", 4, 16, None, "1f1b", cluster=slow, seq=1024)["hop"], float)
    assert len(hop_flows(setup_of(cluster=slow))) == 7


def test_the_slow_link_is_in_the_simulated_pipeline(slow: str) -> None:
    """Neither left out, nor taken for all links."""
    times = model_times("llama-2-7b", 8, 16, None, "1f1b", cluster=slow, seq=1024, framework="deepspeed")
    hops = times.pop("hop")
    spans = [
        distsim.pipeline(stages=8, micro=16, schedule="1f1b", hop=hop, forward=times["forward"],
                         input_gradient=times["input_gradient"], weight_gradient=times["weight_gradient"]).makespan
        for hop in (min(hops), hops, max(hops))
    ]  # fmt: skip
    assert spans[0] < spans[1] < spans[2]
    own = distsim.pipeline(model="llama-2-7b", stages=8, micro=16, schedule="1f1b", cluster=slow, seq=1024,
                           framework="deepspeed")  # fmt: skip
    assert own.makespan == pytest.approx(spans[1])
