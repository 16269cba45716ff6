"""What a stage of ZeRO means where pipeline stages gather parameters, and reduce gradients, once a step."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.weights import weight_work
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import seconds_of
from distsim.engine.steps.after import after_last
from distsim.engine.steps.compose import layout_numbers, micro_batch, stage_numbers
from distsim.engine.steps.timeline import AHEAD, timeline_of
from distsim.engine.steps.work import work_of
from distsim.engine.timelines.simulation import simulated
from distsim.engine.traffic_compare import sync_cost
from distsim.interop.runs import Run
from tests.test_host import TIMING

ROW = {"id": "x", "year": "2024", "model": "llama-2-13b", "gpu": "ascend-910b", "n_gpus": "32", "tp": "4",
       "framework": "mindformers", "seq_len": "4096", "micro_batch": "1", "precision": "fp16",
       "recompute": "none"}  # fmt: skip


@pytest.mark.parametrize(("pp", "zero"), [("4", 1), ("1", 3)])
def test_parameters_of_a_pipeline_are_gathered_once(pp: str, zero: int) -> None:
    assert setup_of(Run({**ROW, "pp": pp, "global_batch": "64", "zero_stage": "3"}, 1)).layout.zero == zero


def test_micro_batches_add_no_gathers() -> None:
    """Replicas over the network cost a pipeline of MindSpore's next to nothing: per device, Code Llama 34B with two of
    them went as fast as Yi 34B with one (667 and 660 tokens/s in the table of mindspore-ai/docs)."""
    alone = {**ROW, "n_gpus": "16", "pp": "4", "global_batch": "64", "zero_stage": "3"}
    both = {**alone, "n_gpus": "32", "global_batch": "128"}
    assert seconds_of(setup_of(Run(both, 1))) < 1.05 * seconds_of(setup_of(Run(alone, 1)))


JOB: dict[str, Any] = {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 128, "tp": 8, "pp": 4, "seq": 4096,
                       "micro_batch": 1}  # fmt: skip


def _calls(purpose: str, phase: str, **more: Any) -> int:
    rows = distsim.comm(**{**JOB, "global_batch": 64, **more}).stages[0]
    return sum(round(row.calls) for row in rows if row.purpose == purpose and row.phase == phase)


@pytest.mark.parametrize("framework", ["torchtitan", "nemo-automodel"])
def test_pipelines_of_torch_gather_and_reduce_once_under_both_stages(framework: str) -> None:
    """torchtitan does not reshard after forward in pipelines, and torch's stages reduce after the last backward."""
    units = _calls("gradients", "backward", framework=framework, zero=3)
    assert _calls("gradients", "backward", framework=framework, zero=3, global_batch=256) == units > 0
    assert _calls("parameters", "forward", framework=framework, zero=3, global_batch=256) == units
    assert _calls("parameters", "backward", framework=framework, zero=3) == 0
    two, three = (distsim.step(**JOB, global_batch=64, framework=framework, zero=zero) for zero in (2, 3))
    assert three.seconds == pytest.approx(two.seconds, rel=1e-3)
    assert three.to_dict()["peak_memory"] == two.to_dict()["peak_memory"]


def test_more_micro_batches_never_shorten_a_step_of_a_pipeline() -> None:
    """With one micro-batch every stage's reduction had been in the bubble: 1.98 s, where two took 1.28."""
    job: dict[str, Any] = {"model": "gpt-oss-120b", "gpu": "tpu-v7x", "gpus": 16, "pp": 4, "ep": 2, "zero": 3,
                           "framework": "torchtitan", "seq": 512, "recompute": "none"}  # fmt: skip
    found = [distsim.step(**job, global_batch=batch).seconds for batch in (4, 8, 16, 32)]
    assert found == sorted(found)


def test_what_forward_drops_is_gathered_for_each_backward() -> None:
    """KempnerForge leaves reshard_after_forward on in pipelines: forward gathers while the pipeline fills, later ones
    find what the last backward left."""
    units = _calls("gradients", "backward", framework="kempnerforge", zero=3)
    assert _calls("parameters", "backward", framework="kempnerforge", zero=3) == 16 * (units - 1)  # the root stays
    assert _calls("parameters", "forward", framework="kempnerforge", zero=3) == 4 * units
    assert _calls("parameters", "forward", framework="kempnerforge", zero=2) == units


def test_reducing_after_each_micro_batch_is_no_choice_in_torchs_pipelines() -> None:
    asked = distsim.comm(**JOB, global_batch=64, framework="torchtitan", zero=3, no_sync=False)
    plain = distsim.comm(**JOB, global_batch=64, framework="torchtitan", zero=3)
    assert asked.wire_bytes_per_rank == plain.wire_bytes_per_rank
    assert any("--sync-every-micro-batch has no effect with pp 4" in note for note in asked.notes)
    assert sync_cost(plain) is None


def test_shards_of_gradients_go_to_the_host_as_often_as_they_are_reduced() -> None:
    offloaded: dict[str, Any] = {"framework": "torchtitan", "zero": 3, "offload": "optimizer,parameters"}
    assert _calls("gradients to host", "backward", **offloaded) == 1
    assert _calls("gradients to host", "backward", **offloaded, pp=1) == 4


def test_tensors_of_their_own_are_copied_out_of_what_was_gathered() -> None:
    """FSDP2's parameters under ZeRO 2 as under ZeRO 3, once where layers stay gathered; FSDP's are views."""

    def copied(framework: str, **more: Any) -> float:
        setup = resolve(distsim.Job(**{**JOB, "tp": 1, "pp": 1, "gpus": 16, "global_batch": 64, **more},
                                    framework=framework))  # fmt: skip
        return float(weight_work(setup, build_stages(setup)[0]).forward)

    assert copied("torchtitan", zero=2) == copied("torchtitan", zero=3) > 0
    assert copied("torchtitan", zero=2, no_sync=True) == pytest.approx(copied("torchtitan", zero=2) / 4)
    assert copied("fsdp", zero=2) == 0 < copied("fsdp", zero=3)


SLOW: dict[str, Any] = {"model": "llama-3-70b", "cluster": "a2-ultragpu-8g", "gpus": 128, "tp": 2, "pp": 4,
                        "seq": 256, "micro_batch": 1, "framework": "torchtitan", "zero": 3}  # fmt: skip
"""Eight A100 at 100 Gb/s."""


def test_what_is_gathered_once_hides_behind_the_first_forward_alone() -> None:
    """Four times the micro-batches make no more room for gathers of the first one."""
    exposed = []
    for batch in (128, 512):
        setup = resolve(distsim.Job(**SLOW, global_batch=batch))
        numbers, y = stage_numbers(work_of(setup))[1], layout_numbers(setup)
        first = micro_batch(numbers, y, TIMING)
        assert numbers["gather_forward"] == 0 < numbers["gather_once"]
        gathers = numbers["gather_once"] * TIMING["gather_factor"]
        assert gathers > 1.5 * first.forward
        after = after_last(numbers, TIMING, first)
        exposed.append(after.parts()["data_parallel"])
        assert after.ahead.left == pytest.approx(gathers - first.forward)
        assert first.others["data_parallel"] == 0
    assert exposed[1] == pytest.approx(exposed[0], rel=1e-3)


def test_traffic_lets_one_pass_hide_what_comes_once_in_a_step() -> None:
    for purpose, once in (("parameters", SLOW), ("gradients", SLOW), ("gradients", {**SLOW, "zero": 0})):
        found = []
        for batch in (128, 512):
            rows = distsim.comm(**once, global_batch=batch).stages[1]
            found.append(sum(row.exposed_seconds for row in rows if row.purpose == purpose and row.phase != "step"))
        assert found[0] == pytest.approx(found[1]) and found[0] > 0
    each = [distsim.comm(**{**SLOW, "pp": 1, "tp": 8}, global_batch=batch).exposed_seconds for batch in (128, 512)]
    assert each[1] > 3 * each[0]


def test_a_pipeline_that_gathers_once_is_drawn_as_long_as_it_takes() -> None:
    step = timeline_of(distsim.step(**SLOW, global_batch=128))
    gathers = [one for one in step.segments(step.slowest) if one.name == AHEAD]
    assert {one.exposed for one in gathers} == {True, False}
    assert max(one.end for one in step.segments(step.slowest)) == pytest.approx(step.seconds)


def test_partial_gradients_of_norms_are_summed_as_often_as_shards_are_reduced() -> None:
    """FSDP adds them up as they are, in the type it reduces in, and sums them over tensor parallel ranks then."""

    def summed(**more: Any) -> set[tuple[str, int]]:
        rows = distsim.comm(**{**JOB, "framework": "torchtitan", "zero": 3, "global_batch": 64, **more}).stages[0]
        return {(row.dtype, round(row.calls)) for row in rows if row.purpose == "replicated gradients"}

    norms = 2 * 20  # of 20 layers on the first stage
    assert summed() == {("fp32", norms)}
    assert summed(global_batch=4) == {("bf16", norms)}
    whole = 2 * 80 + 1
    assert summed(pp=1) == {("bf16", 4 * whole)} and summed(pp=1, no_sync=True) == {("fp32", whole)}


@pytest.mark.parametrize(("pp", "words"), [(1, "twice, by layer"), (4, "once, by layer")])
def test_the_table_of_stages_tells_how_often_parameters_are_gathered(
    pp: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["llama-3-8b", "--gpus", "16", "--tp", "2", "--pp", str(pp), "--zero", "3", "--framework", "torchtitan"]
    assert run(["comm", *job, "--global-batch", "64"]) == 0
    assert words in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("3 *"))


EACH: dict[str, Any] = {"model": "megatron-145.6b", "gpu": "h100-sxm", "gpus": 64, "tp": 2, "pp": 4}


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize(
    ("framework", "schedule"),
    [("maxtext", "gpipe"), ("alpa", "1f1b"), ("alpa", "zb-h1"), ("levanter", "gpipe"), ("paxml", "looped-bfs")],
)
def test_gradients_of_each_micro_batch_keep_no_other_stage_waiting(framework: str, schedule: str, zero: int) -> None:
    """Twice the batch takes at most twice as long, and closed form and event simulation agree on what remains."""
    job = {**EACH, "framework": framework, "schedule": schedule, "zero": zero}
    steps = [distsim.step(**job, global_batch=8 << times, vpp=2 if schedule == "looped-bfs" else 1)
             for times in range(4)]  # fmt: skip
    for few, many in pairwise(steps):
        assert few.seconds < many.seconds < 2 * few.seconds
    for step in steps[1:]:
        stage = micro_batch(
            stage_numbers(step.work)[0], layout_numbers(step.setup, step.correction.state), step.timing.model_dump()
        )
        assert 0 < stage.trailing < stage.others["data_parallel"] + 1e-9
        assert stage.passed_on == pytest.approx(stage.seconds - stage.trailing)
        assert abs(timeline_of(step).slack) < 0.05 * step.seconds


@pytest.mark.parametrize("batch", [4, 16, 64])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
def test_other_stages_wait_for_gathers_whether_or_not_something_hides_them(batch: int, schedule: str) -> None:
    """Apart from computation they had been counted behind the pipeline, so that overlapping them made steps longer."""
    job = {"model": "minimax-text-01", "gpu": "mi300x", "gpus": 64, "tp": 4, "pp": 2, "cp": 2, "ep": 8, "zero": 3,
           "seq": 4096, "recompute": "none", "global_batch": batch, "schedule": schedule}  # fmt: skip
    beside, apart = (distsim.step(**job, dp_comm_overlap=overlaps) for overlaps in (True, False))
    assert beside.seconds < apart.seconds
    assert abs(timeline_of(apart).slack) < 0.02 * apart.seconds


def test_without_a_pipeline_shards_that_nothing_hides_cost_what_they_take() -> None:
    job = {"model": "llama-13b", "gpu": "h100-sxm", "gpus": 16, "zero": 3, "framework": "deepspeed",
           "global_batch": 64, "dp_comm_overlap": False}  # fmt: skip
    step = distsim.step(**job)
    (stage,) = stage_numbers(step.work)
    waits = stage["dp_forward"] + stage["dp_backward"] + stage["dp_reduce"]
    assert min(stage["dp_forward"], stage["dp_backward"], stage["dp_reduce"]) > 100 * stage["dp_step"] > 0
    priced = (waits + stage["dp_step"]) * step.timing.data_factor
    assert step.breakdown["data_parallel"] == pytest.approx(priced * math.exp(step.correction.logarithm))


def test_a_trailing_reduction_keeps_its_stage_alone() -> None:
    """Two stages, two micro-batches: 2 s each of forward and backward, and 1 s that trails behind each backward."""
    plain, longer = simulated(2, 2, "1f1b", None, 2.0, 2.0), simulated(2, 2, "1f1b", None, 2.0, 3.0)
    trailing = simulated(2, 2, "1f1b", None, 2.0, 3.0, trailing=[1.0, 1.0])
    assert (plain.makespan, trailing.makespan, longer.makespan) == (12.0, 14.0, 15.0)
    assert trailing.busy == longer.busy


@pytest.mark.parametrize("micro", [4, 5000])
def test_what_trails_repeats_with_the_micro_batches(micro: int) -> None:
    """Of many a few are run and the others follow: the last stage works throughout, one chunk of the first three
    before it and after it without what trails."""
    found = simulated(4, micro, "interleaved-1f1b", 2, 2.0, 3.0, trailing=[0.7] * 4)
    assert found.makespan == pytest.approx(5 * micro + 3 * (5 - 0.7) / 2, abs=1e-6)
