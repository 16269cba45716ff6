"""The time of a training step: parts add up, laws hold, published measurements are met."""

from __future__ import annotations

import json
import math

import numpy
import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.advice.faster import faster
from distsim.engine.corrections.correction import correction_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.kernels.compute import ALONE
from distsim.engine.kernels.sums import CLASSES
from distsim.engine.step import step_of
from distsim.engine.steps.breakdown import breakdown_of, timing_of
from distsim.engine.steps.compose import PARTS, compose, layout_numbers, stage_numbers
from distsim.engine.steps.stage_seconds import gpu_seconds
from distsim.engine.steps.work import work_of
from distsim.formulas.compute import mean_tiles
from distsim.formulas.step import apart_seconds, ramp_seconds
from distsim.specs.job import Job

JOBS = {
    "one gpu": {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": 1, "seq": 1024},
    "zero 3": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 3, "framework": "torchtitan"},
    "3d": {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 4, "vpp": 2, "global_batch": 64},
    "experts": {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 16, "ep": 8, "zero": 1, "precision": "fp8"},
    "context": {"model": "llama-3-8b", "gpu": "b200-sxm", "gpus": 8, "cp": 8, "seq": 65536, "recompute": "full"},
    "eager": {"model": "gpt3-175b", "gpus": 64, "tp": 8, "pp": 8, "attention": "eager", "recompute": "selective",
              "global_batch": 64, "framework": "megatron-lm"},
    "zero bubble": {"model": "llama-13b", "gpus": 16, "tp": 2, "pp": 8, "schedule": "zb-h1", "global_batch": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", list(JOBS))
def test_parts_add_up_and_rates_follow(name: str) -> None:
    report = distsim.step(**JOBS[name])
    answer = report.to_dict()
    assert set(answer["breakdown"]) == set(PARTS)
    assert math.isclose(sum(answer["breakdown"].values()), answer["seconds"], rel_tol=1e-9)
    assert all(seconds >= 0 for seconds in answer["breakdown"].values())
    assert 0 < answer["mfu"] <= answer["hfu"] < 1
    low, high = answer["interval"]["low"], answer["interval"]["high"]
    assert low < answer["seconds"] < high and answer["interval"]["level"] == 0.9
    y = report.setup.layout
    tokens = y.seq * y.micro_batch * y.micro_batches * y.dp
    assert math.isclose(answer["tokens_per_second"] * answer["seconds"], tokens, rel_tol=1e-9)
    assert math.isclose(answer["tokens_per_second_per_gpu"] * y.gpus, answer["tokens_per_second"], rel_tol=1e-9)
    assert answer["fits"] == (answer["peak_memory"] <= report.memory.capacity)


def seconds(**options: object) -> float:
    """Step time of the fitted model alone."""
    setup = resolve(Job.read(options))
    return sum(breakdown_of(work_of(setup), timing_of(setup)).values())


@pytest.mark.parametrize("name", list(JOBS))
def test_more_work_takes_longer(name: str) -> None:
    job = JOBS[name]
    base = seconds(**job)
    batch = 2 * resolve(Job.read(job)).to_dict()["global_batch"]
    assert seconds(**{**job, "global_batch": batch}) > base
    seq = resolve(Job.read(job)).layout.seq
    assert seconds(**{**job, "seq": seq // 2}) < base
    if not job.get("recompute"):
        assert seconds(**{**job, "recompute": "full"}) > base


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("matmul", 1 / 0.5), ("grouped", 1 / (0.5 * 0.9)), ("matmul8", 1 / (0.5 * 0.8)),
        ("grouped8", 1 / (0.5 * 0.8 * 0.9)), ("attention", 1 / 0.4), ("memory", 1 / 0.7), ("kernels", 1e-6),
        ("waits", 1e-4), ("issued", 0.0),
    ],
)  # fmt: skip
def test_each_kind_of_kernel_takes_its_own_share_of_the_best_rate(kind: str, expected: float) -> None:
    timing = {"matmul": 0.5, "matmul_narrow": 0.8, "grouped": 0.9, "attention": 0.4, "stream": 0.7,
              "kernel_gap_seconds": 1e-6, "kernel_issue_seconds": 1e-4}  # fmt: skip
    stage = {f"forward.{name}": float(name == kind) for name in CLASSES}
    assert gpu_seconds(stage, "forward", timing) == pytest.approx(expected)


def test_a_faster_chip_and_network_are_faster() -> None:
    job = {"model": "llama-7b", "gpus": 32, "zero": 3}
    assert seconds(**job, gpu="h100-sxm") < seconds(**job, gpu="a100-sxm4-80gb") < seconds(**job, gpu="v100-sxm2-32gb")


def test_full_recomputation_is_a_third_more_work() -> None:
    """Forward, twice as much backward, forward again; of a long model, whose output layer is not computed again."""
    report = distsim.step(model="llama-7b", gpus=8, recompute="full", seq=2048)
    assert report.hfu / report.mfu == pytest.approx(4 / 3, rel=0.02)


def test_full_recomputation_of_a_gpt_is_equation_3_of_megatron() -> None:
    """Narayanan et al. 2021 (arXiv:2104.04473): 96 s l h^2 (1 + s/6h + V/16lh) with recomputation, 72 without, where
    V/12lh is the output layer's part."""
    report = distsim.step(model="gpt3-175b", gpus=64, tp=8, pp=8, recompute="full", framework="megatron-lm")
    layers, hidden, vocab, seq = 96, 12288, 51200, 2048
    work = 4 / 3 * (1 + seq / 6 / hidden + vocab / 16 / layers / hidden)
    assert report.hfu / report.mfu == pytest.approx(
        work / (1 + seq / 6 / hidden + vocab / 12 / layers / hidden), rel=1e-4
    )


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_hardware_flops_are_work_and_no_seconds(precision: str) -> None:
    """Core attention once more is 4 L H S of 6 N + 12 L H S, however much slower than other products it is."""
    report = distsim.step(
        model="llama-3-8b", gpu="h100-sxm", gpus=8, tp=2, seq=8192, recompute="selective", precision=precision
    )
    attention = 4 * 32 * 4096 * 8192
    model = 6 * (8_030_261_248 - 128_256 * 4096) + 3 * attention
    assert report.hfu / report.mfu == pytest.approx(1 + attention / model, rel=1e-4)


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 4), (8, 32)])
def test_closed_form_and_simulation_agree(stages: int, micro: int) -> None:
    """Within 1% where both apply: alike stages and a slower last one under 1F1B, alike chunks when interleaved."""
    for last in (1.0, 1.2):
        each = [1.0] * (stages - 1) + [last]
        simulated = distsim.pipeline(stages=stages, micro=micro, forward=each, backward=[2 * t for t in each]).makespan
        closed = micro * 3 * last + ramp_seconds(3 * sum(each), 3 * last, 1)
        assert math.isclose(simulated, closed, rel_tol=0.01)
    chunked = distsim.pipeline(
        stages=stages, micro=micro, schedule="interleaved-1f1b", chunks=2, forward=1.0, backward=2.0
    )
    assert math.isclose(chunked.makespan, 3 * micro + ramp_seconds(3 * stages, 3, 2), rel_tol=0.01)


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("looped-bfs", 2), ("looped-bfs", 3)])
@pytest.mark.parametrize("micro", [4, 8, 32])
def test_closed_form_of_forwards_and_backwards_apart(schedule: str, chunks: int, micro: int) -> None:
    """The slowest stage of forward is not the slowest of backward."""
    forward, backward = [1.0, 1.0, 2.0, 1.5], [4.0, 2.5, 2.0, 2.0]
    run = distsim.pipeline(4, micro, schedule, chunks=chunks, forward=forward, backward=backward)
    both = [sum(pair) for pair in zip(forward, backward, strict=True)]
    closed = micro * max(both) + ramp_seconds(sum(both), max(both), chunks)
    closed += apart_seconds(max(forward), max(backward), max(both), micro, chunks)
    assert math.isclose(run.makespan, closed, rel_tol=1e-9 if chunks == 1 else 0.02)


def test_arrays_of_jobs_agree_with_single_jobs() -> None:
    setups = [resolve(Job.read(JOBS[name])) for name in ("one gpu", "3d", "experts")]
    timings = [timing_of(setup).model_dump() for setup in setups]
    works = [work_of(setup) for setup in setups]
    flat = [stage_numbers(work) for work in works]
    stages = [
        {name: numpy.array([f[slot][name] if slot < len(f) else 0.0 for f in flat]) for name in flat[0][0]}
        for slot in range(3)
    ]
    layout = {
        name: numpy.array([layout_numbers(setup)[name] for setup in setups], float)
        for name in layout_numbers(setups[0])
    }
    timing = {name: numpy.array([one[name] for one in timings]) for name in timings[0]}
    together = sum(compose(stages, layout, timing).values())
    single = [sum(breakdown_of(work, timing_of(setup)).values()) for work, setup in zip(works, setups, strict=True)]
    numpy.testing.assert_allclose(together, single, rtol=1e-9)


def test_intervals_are_wider_for_jobs_that_wait() -> None:
    near = distsim.step(model="llama-3.1-70b", gpu="h100-sxm", gpus=64, tp=4, pp=4, cp=2, vpp=5, zero=1, seq=8192,
                        global_batch=128, framework="nemo")  # fmt: skip
    far = distsim.step(model="gpt2", gpu="rtx-4090", gpus=2, seq=1024, framework="litgpt")
    width = [math.log(one.interval.high / one.interval.low) for one in (near, far)]
    assert near.evidence.nearest > far.evidence.nearest
    assert width[0] < width[1]


def test_faster_changes_are_computed() -> None:
    report = distsim.step(model="llama-13b", gpus=16, tp=4, pp=4, recompute="full", global_batch=32)
    found = faster(report)
    assert 1 <= len(found) <= 3
    assert all(
        one.seconds < report.seconds and math.isclose(1 - one.seconds / report.seconds, one.gain) for one in found
    )
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)


def test_a_job_that_no_framework_run_is_like_is_not_corrected() -> None:
    setup = resolve(Job.read({"model": "gpt2", "gpu": "rtx-4090", "gpus": 1, "framework": "litgpt"}))
    assert abs(correction_of(setup).logarithm) < 0.05


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["step", "llama-7b", "--gpus", "16", "--gpu", "h100-sxm", "--zero", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "distsim.step/1" and answer["fits"] is True
    assert run(["step", "llama-7b", "--gpus", "16", "--gpu", "h100-sxm", "--zero", "3", "--explain"]) == 0
    told = capsys.readouterr().out
    for word in ("step time", "MFU", "peak memory", "data parallel", "matmul", "interval"):
        assert word in told
    assert run(["step", "llama-65b", "--gpus", "8", "--json"]) == 1


def test_one_estimate_does_not_import_numpy() -> None:
    import subprocess
    import sys

    code = "import sys, distsim; distsim.step(model='llama-7b', gpus=16).seconds; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_report_is_of_the_setup() -> None:
    setup = resolve(Job.read(JOBS["3d"]))
    assert step_of(setup).setup is setup


def test_one_expert_alone_is_nearly_a_plain_product() -> None:
    """Mixtral with an expert per rank: most of its experts' products count as dense; with eight, few."""

    def dense(ep: int) -> float:
        setup = resolve(Job(model="mixtral-8x7b", gpu="h100-sxm", gpus=8, ep=ep, micro_batch=1, global_batch=8))
        layer = next(iter(stage_numbers(work_of(setup))))
        return float(layer["forward.matmul"] / (layer["forward.matmul"] + layer["forward.grouped"]))

    assert dense(8) > 0.95 * ALONE > 2.5 * dense(1)  # the busiest rank has more grouped ones


def test_tokens_of_experts_spread_over_tiles() -> None:
    """Tiles that experts fill in the mean: rounded up where all have as many tokens, half a tile more than their mean
    where they have none to twice as many. One token more than a tile had cost a quarter of a step."""
    assert mean_tiles(128, 128) == 1 and mean_tiles(129, 128) == 2
    for mean, spread in ((40, 1.0), (128, 1.0), (300, 0.25), (1000, 0.06)):
        lengths = numpy.linspace(mean * (1 - spread), mean * (1 + spread), 200_001)
        assert mean_tiles(mean, 128, spread) == pytest.approx(numpy.ceil(lengths / 128).mean(), rel=1e-3)
    assert mean_tiles(1280, 128, 1.0) == pytest.approx(10.5)
    job = {"model": "olmoe-1b-7b", "gpu": "h20", "framework": "torch-compile", "gpus": 32, "pp": 8, "zero": 0}
    steps = [distsim.step(**job, micro_batch=1, global_batch=16, seq=seq).seconds for seq in (1024, 1025)]
    assert steps[0] < steps[1] < 1.02 * steps[0]


@pytest.mark.parametrize("words", [["llama-7b", "--zero", "3"], ["llama-7b", "--gpu", "h100-sxm", "--seq", "1"]])
def test_what_an_interval_rests_on_fits_a_narrow_terminal(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for lines that are there to be copied, no line of a step is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    run(["step", *words])
    out = capsys.readouterr().out
    assert "each predicted from the others" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(("precision", "like"), [("bf16", False), ("fp16", True)])
def test_products_in_full_precision_are_known_as_little_as_chips_without_runs(precision: str, like: bool) -> None:
    """A V100 has no bf16 units: what was measured there with fp16 says nothing of such a job, nor it of them."""
    job = {"model": "gpt2-xl", "gpu": "v100-sxm2-32gb", "gpus": 8, "framework": "megatron-lm"}
    basis = distsim.step(**job, precision=precision).interval.basis
    assert ("under megatron" in basis) is like
