"""How long the GPU waits for a host that issues its kernels: part of the step, told where it matters."""

from __future__ import annotations

from typing import Any

import pytest
from shell import piped

import distsim
from distsim import Job
from distsim.engine.jobs.resolve import resolve
from distsim.engine.step import step_of
from distsim.engine.steps.pass_times import launch_waits, model_setup, pass_times
from distsim.engine.steps.report import StepReport
from distsim.report.search_table import BRIEF, limits
from distsim.report.step import breakdown
from distsim.report.style import style
from distsim.units import duration, parse

SMALL = {"model": "gpt2", "gpu": "h100-sxm", "gpus": 8, "seq": 1024}


def steps(**more: Any) -> StepReport:
    return step_of(resolve(Job(**{**SMALL, **more})))


def share(**more: Any) -> float:
    report = steps(**more)
    assert 0 <= report.host_wait_seconds < report.seconds
    assert report.to_dict()["host_wait_seconds"] == report.host_wait_seconds
    return report.host_wait_seconds / report.seconds


def test_larger_micro_batches_keep_the_gpu_busy() -> None:
    shares = [share(micro_batch=size) for size in (1, 4, 16, 64)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5 > 0.05 > shares[-1]


@pytest.mark.parametrize("options", [{"cuda_graphs": "iteration"}, {"framework": "maxtext"}])
def test_whole_graphs_and_compilers_leave_nothing_to_wait_for(options: dict[str, str]) -> None:
    assert share(**options) < 0.05


def test_experts_in_a_loop_wait_longer_the_more_a_rank_has() -> None:
    job = {"model": "qwen3-30b-a3b", "gpus": 64, "seq": 2048, "framework": "megatron-bridge", "zero": 1}
    few, many = (steps(**job, ep=degree) for degree in (32, 8))
    assert few.host_wait_seconds < many.host_wait_seconds


@pytest.mark.parametrize(("framework", "seq"), [("megatron-core", 256), ("torchtitan", 512)])
def test_gathers_do_not_hide_while_the_gpu_waits(framework: str, seq: int) -> None:
    """Gathers that take longer than the passes: a host that needs no time had made such steps longer."""
    report = steps(model="llama-3-8b", gpus=64, zero=3, framework=framework, seq=seq)
    assert report.breakdown["data_parallel"] > 0.2 * report.seconds
    assert sum(report.host_waits.values()) >= 0


@pytest.mark.parametrize(
    "overlap", [{"framework": "megatron-core", "expert_overlap": True}, {"pp": 2, "schedule": "dualpipe"}]
)
def test_nor_do_exchanges_beside_another_micro_batch(overlap: dict[str, Any]) -> None:
    job = {"model": "qwen3-30b-a3b", "cluster": "jean-zay-v100-32gb", "gpus": 64, "ep": 32, "seq": 512}
    waits = step_of(resolve(Job(**job, zero=1, global_batch=256, **overlap))).host_waits
    assert waits["compute"] > 0 > waits["expert_parallel"] > -waits["compute"]


def test_it_is_told_where_it_matters() -> None:
    words = ("step", "gpt2", "--gpu", "h100-sxm", "--gpus", "8", "--seq", "1024")
    line = "host        the GPU waits "
    assert sum(one.startswith(line) for one in piped(*words).stdout.splitlines()) == 1
    assert line not in piped(*words, "--cuda-graphs", "iteration").stdout


SHORT: dict[str, Any] = {"model": "llama-2-13b", "gpu": "h100-sxm", "gpus": 16, "global_batch": 64, "tp": 8, "zero": 1}


def test_compute_says_how_much_of_it_waits_and_parts_still_add_up() -> None:
    """Exchanges hide in some of the wait, so that compute alone would save more than the step."""
    report = distsim.step(**SHORT)
    assert sum(report.host_waits.values()) == pytest.approx(report.host_wait_seconds)
    assert report.host_waits["compute"] > report.host_wait_seconds > 0.05 * report.seconds
    assert sum(report.breakdown.values()) == pytest.approx(report.seconds)
    (line,) = (one for one in breakdown(report, style()) if "waiting for kernel launches" in one)
    assert line.startswith("C  compute") and f"of it {duration(report.host_wait_seconds)} waiting" in line
    busy = distsim.step(**SHORT, micro_batch=16)
    assert not any("launches" in one for one in breakdown(busy, style()))


def test_recomputation_has_its_share_of_the_wait() -> None:
    report = distsim.step(**SHORT, recompute="full")
    told = [one.split("of it ") for one in breakdown(report, style()) if "launches" in one]
    assert [one[0].split()[1] for one in told] == ["compute", "recompute"]
    seconds = sum(parse(one[1].partition(" waiting")[0], "s") for one in told)
    assert seconds <= 1.01 * report.host_wait_seconds


def test_searches_say_that_kernel_launches_limit_a_layout() -> None:
    """It was said to be limited by compute."""
    found = distsim.search(SHORT["model"], gpu="h100-sxm", gpus=16, global_batch=64, tp=8, pp=1, cp=1, zero=1,
                           recompute="none")  # fmt: skip
    by_size = {int(one.report.setup.layout.micro_batch): one for one in found.best}
    slow, busy = by_size[1], by_size[16]
    share = slow.report.host_wait_seconds / slow.report.seconds
    assert limits(slow, False, 3, {}).startswith(f"kernel launches {share:.0%}")
    assert limits(slow, False, 1, BRIEF) == f"launches {share:.0%}"
    assert "launches" not in limits(busy, False, 3, {})


def test_passes_of_a_model_say_how_much_of_them_is_the_hosts_pace() -> None:
    words = ("pipeline", "--model", "llama-7b", "--stages", "4", "--micro", "8", "--gpu", "h100-sxm")
    setup = model_setup("llama-7b", 4, 8, None, gpu="h100-sxm", tp=2)
    times = pass_times(setup)
    forward, backward = launch_waits(setup, times)
    assert 0 < forward < max(times["forward"]) and 0 < backward < max(times["backward"])
    told = f"(of it {duration(forward)} and {duration(backward)} waiting for the host's kernel launches)"
    assert told in piped(*words, "--tp", "2").stdout
    assert "kernel launches" not in piped(*words, "--seq", "8192").stdout
