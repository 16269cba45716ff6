"""How long the GPU waits for a host that issues its kernels: part of the step, told where it matters."""

from __future__ import annotations

from typing import Any

import pytest
from shell import piped

from distsim import Job
from distsim.engine.jobs.resolve import resolve
from distsim.engine.step import step_of
from distsim.engine.steps.report import StepReport

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


def test_it_is_told_where_it_matters() -> None:
    words = ("step", "gpt2", "--gpu", "h100-sxm", "--gpus", "8", "--seq", "1024")
    line = "host        the GPU waits "
    assert sum(one.startswith(line) for one in piped(*words).stdout.splitlines()) == 1
    assert line not in piped(*words, "--cuda-graphs", "iteration").stdout
