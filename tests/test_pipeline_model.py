"""``distsim pipeline --model``: the stages' times are those that ``distsim step`` composes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.steps.composed import composed
from distsim.engine.steps.pass_times import model_setup, model_times, pass_times
from distsim.engine.steps.timeline import timeline_of
from distsim.errors import DistsimError
from distsim.report import pipeline_text

LLAMA = {"gpu": "h100-sxm", "tp": 8, "seq": 4096}


def test_every_pass_of_every_stage_has_a_time() -> None:
    times = model_times("llama-70b", 4, 8, None, **LLAMA)
    for name in ("forward", "backward", "input_gradient", "weight_gradient"):
        assert len(times[name]) == 4
        assert all(value > 0 for value in times[name])
    assert times["backward"] == pytest.approx(
        [first + second for first, second in zip(times["input_gradient"], times["weight_gradient"], strict=True)]
    )
    assert 1.2 < times["backward"][1] / times["forward"][1] < 3  # the host is late for forward more than for backward
    assert times["forward"][-1] > times["forward"][1]  # the head and the loss
    assert 0 <= times["hop"] < times["forward"][1]


def test_recomputation_lengthens_the_input_gradient_only() -> None:
    plain = model_times("llama-70b", 4, 8, None, **LLAMA)
    again = model_times("llama-70b", 4, 8, None, **LLAMA, recompute="full")
    assert again["input_gradient"][1] > 1.3 * plain["input_gradient"][1]
    assert again["weight_gradient"][1] == pytest.approx(plain["weight_gradient"][1], rel=0.06)


def test_the_simulated_pipeline_agrees_with_the_step() -> None:
    """The step's critical path less what is not the pipeline's (optimizer, data parallel, jitter, corrections)."""
    times = model_times("llama-70b", 4, 32, None, **LLAMA)
    simulated = distsim.pipeline(stages=4, micro=32, **times).makespan
    report = distsim.step(model="llama-70b", gpu="h100-sxm", gpus=32, tp=8, pp=4, seq=4096, global_batch=32)
    parts = ("compute", "tensor_parallel", "pipeline_bubble", "pipeline_transfer")
    assert simulated == pytest.approx(sum(report.breakdown[name] for name in parts), rel=0.15)


def test_the_command_takes_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--stages", "4", "--micro", "8", "--model", "gpt2-xl", "--json"]
    assert run(["pipeline", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert 0 < answer["makespan"] < 60
    assert answer["stages"] == 4


@pytest.mark.parametrize(
    "options",
    [
        ["--stages", "4", "--micro", "8", "--tp", "8"],
        ["--stages", "4", "--micro", "8", "--model", "llama-70b", "--forward", "1"],
        ["--stages", "4", "--model", "llama-70b"],
        ["--stages", "3", "--micro", "8", "--model", "llama-70b", "--framework", "megatron-2021"],
        ["--stages", "4", "--micro", "8", "--model", "llama-70bb"],
    ],
)
def test_what_makes_no_sense_with_a_model_is_refused(options: list[str]) -> None:
    assert run(["pipeline", *options]) == 2


def test_the_split_of_an_uneven_model_is_told_and_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """What the framework does is told, and other splits can be typed."""
    words = ["pipeline", "--model", "llama-7b", "--stages", "5", "--micro", "10"]
    assert run(words) == 0
    assert "7 on stages 0-3, 4 on stage 4" in capsys.readouterr().err
    assert run([*words, "--stage-layers", "7,7,6,6,6"]) == 0
    assert run(["pipeline", "--stages", "2", "--micro", "4", "--stage-layers", "1,2"]) == 2
    assert "--stage-layers: only valid with --model" in capsys.readouterr().err


def test_times_of_a_model_are_told_with_their_unit_and_their_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["pipeline", "--stages", "4", "--micro", "8", "--model", "llama-3-8b", "--seq", "2048"]
    for more in ([], ["--compare"]):
        assert run([*words, *more]) == 0
        out = capsys.readouterr().out
        assert "llama-3-8b on a100-sxm4-80gb, 1 x 2,048 tokens per micro-batch, bf16," in out
        assert re.search(r"slowest stage: forward [\d.]+ ms, backward [\d.]+ ms; transfer [\d.]+ [um]s", out)
        assert re.search(r"(makespan +|1f1b +1 +)[\d.]+ m?s", out)
        assert max(map(len, out.splitlines())) <= 80


def test_what_is_not_the_default_is_told_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """A drawing says whether layers are computed again, and what trains: both change its times."""
    words = ["pipeline", "--stages", "4", "--micro", "8", "--model", "llama-3-8b", "--seq", "2048"]
    more = ["--recompute", "full", "--lora-rank", "16", "--quantize", "nf4"]
    for also in ([], ["--compare"]):
        assert run([*words, *more, *also]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "megatron-core, full recompute, adapters of rank 16 on nf4 weights" in told


def test_the_list_of_schedules_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pipeline", "--list"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "arXiv:2104.04473" in out


def test_a_model_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    """Its stages' own times, as with --model."""
    run(["pipeline", "--stages", "4", "--micro", "8", "--model", "llama-7b", "--tp", "2", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert distsim.pipeline(stages=4, micro=8, model="llama-7b", tp=2).to_dict() == shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "llama-7b", "forward": 2}, "exclude each other"),
        ({"gpu": "h100-sxm"}, "gpu: only valid with model"),
        ({"model": "llama-7b", "gpus": 8}, "set by stages"),
        ({"model": "llama-7b", "gpuz": 8}, "unknown field 'gpuz'"),
    ],
)
def test_a_model_in_python_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DistsimError, match=words):
        distsim.pipeline(stages=4, micro=8, **options)


def test_chunks_of_a_v_are_timed_on_the_stages_that_hold_them() -> None:
    """The model runs down the stages and back up, so the first has embedding and head: the long stage is that one."""
    wide = {"gpu": "h100-sxm", "seq": 4096, "tp": 2}  # a head as long as several of the layers
    by_chunk = model_times("llama-3-8b", 4, 8, None, "zb-v", **wide)
    assert {len(by_chunk[name]) for name in ("forward", "backward", "input_gradient", "weight_gradient")} == {8}
    middle, head = by_chunk["forward"][3], by_chunk["forward"][-1]
    assert head > 1.3 * middle
    assert max(by_chunk["forward"][1:-1]) == pytest.approx(middle, rel=0.01)
    run = distsim.pipeline(stages=4, micro=8, schedule="zb-v", model="llama-3-8b", **wide)
    assert run.parts.placement[-1] == 0
    assert max(run.busy) == run.busy[0] > 1.1 * run.busy[3]


def test_how_chunks_are_dealt_changes_nobodys_work() -> None:
    """All chunks together take what the whole stages take, looped or as a V, alike or not."""
    for model, stages, micro in (("llama-3-8b", 4, 8), ("llama-7b", 5, 10)):
        whole = model_times(model, stages, micro, None, "1f1b", seq=2048)
        for schedule, chunks in (("zb-v", 2), ("interleaved-1f1b", 2), ("hanayo", 4)):
            dealt = model_times(model, stages, micro, chunks, schedule, seq=2048)
            assert len(dealt["forward"]) == stages * chunks
            if schedule == "interleaved-1f1b":
                assert dealt["hop"] == pytest.approx(whole["hop"]), "a message is as long however many there are"
            for name in ("forward", "backward"):
                assert sum(dealt[name]) == pytest.approx(sum(whole[name]), rel=0.03)


def test_a_comparison_takes_each_schedules_own_stages(capsys: pytest.CaptureFixture[str]) -> None:
    """A row of the comparison is what its schedule takes when asked for alone."""
    words = ["pipeline", "--stages", "4", "--micro", "8", "--model", "llama-3-8b", "--seq", "2048", "--json"]
    assert run([*words, "--compare"]) == 0
    rows = {row["schedule"]: row["makespan"] for row in json.loads(capsys.readouterr().out)["schedules"]}
    for schedule in ("zb-v", "v-half", "interleaved-1f1b", "dualpipe", "gpipe"):
        assert run([*words, "--schedule", schedule]) == 0
        assert json.loads(capsys.readouterr().out)["makespan"] == pytest.approx(rows[schedule], rel=1e-12)


def test_a_schedule_is_drawn_for_a_framework_that_has_not_got_it() -> None:
    drawn = distsim.pipeline(stages=4, micro=8, schedule="zb-v", model="llama-3-8b", seq=2048, framework="deepspeed")
    assert drawn.schedule == "zb-v"
    with pytest.raises(DistsimError, match="has no pipeline parallelism"):
        distsim.pipeline(stages=4, micro=8, schedule="zb-v", model="llama-3-8b", framework="huggingface")


def test_an_order_that_turns_back_has_the_models_ends_on_one_stage() -> None:
    order = ["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"]
    run_of = distsim.pipeline(order=order, stages=2, micro=1, placement=[0, 1, 1, 0], model="llama-3-8b", seq=2048)
    assert run_of.busy[0] > 1.1 * run_of.busy[1]


@pytest.mark.parametrize("schedule", ["1f1b", "zb-v", "gpipe"])
def test_one_stage_never_idles(schedule: str) -> None:
    """Not even by the rounding of sums, which would print as minus nothing."""
    for micro in (7, 24):
        run_of = distsim.pipeline(stages=1, micro=micro, schedule=schedule, model="olmo-7b", gpu="t4", tp=2, seq=128)
        figures = (run_of.bubble_fraction, run_of.span_bubble_fraction, *run_of.idle)
        assert all(0 <= one < 1e-9 and not str(one).startswith("-") for one in figures)


def test_an_order_is_sought_for_the_longest_hop() -> None:
    times = {"schedule": "zb-auto", "forward": 1.0, "input_gradient": 1.0, "weight_gradient": 1.0}
    even, one = (distsim.pipeline(4, 8, **times, hop=hop) for hop in ([0.5] * 4, [0.0, 0.5, 0.0, 0.0]))
    assert one.parts.orders == even.parts.orders


def test_a_pipeline_of_a_model_states_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--stages 2 --micro 4 --model llama-3-8b --gpu h100-sxm --tp 2 --recompute full --json"
    assert run(["pipeline", *words.split()]) == 0
    told = json.loads(capsys.readouterr().out)
    job = told["job"]
    assert (job["model"], job["gpu"], job["tp"], job["pp"], job["recompute"]) == (
        "llama-3-8b", "h100-sxm", 2, 2, "full"
    )  # fmt: skip
    assert distsim.Job(**job).pp == 2
    library = distsim.pipeline(stages=2, micro=4, model="llama-3-8b", gpu="h100-sxm", tp=2, recompute="full")
    assert library.to_dict() == told
    assert run(["pipeline", "--stages", "2", "--micro", "4", "--json"]) == 0
    assert "job" not in json.loads(capsys.readouterr().out)
    assert run(["pipeline", *words.split(), "--compare"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["tp"] == 2


@pytest.mark.parametrize("further", [{"ep": 8}, {"ep": 8, "etp": 2}, {"cp": 2}, {"cp": 2, "ep": 8}])
def test_experts_of_a_pipeline_are_spread_over_replicas(
    further: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The passes are a step's with as many replicas, and shorter than those of one rank with all experts."""
    job: dict[str, Any] = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "tp": 2, "seq": 4096, **further}
    drawn = distsim.pipeline(**job, stages=4, micro=8)
    expert_ranks = further.get("ep", 1) * further.get("etp", 1)
    replicas = expert_ranks // (2 * further.get("cp", 1)) or 1
    gpus = 8 * further.get("cp", 1) * replicas
    step = distsim.step(**job, gpus=gpus, pp=4, global_batch=8 * replicas)
    assert timeline_of(step).run.makespan == pytest.approx(drawn.makespan, rel=0.01)
    words = [word for name, value in job.items() for word in (f"--{name}", str(value))]
    assert run(["pipeline", "--stages", "4", "--micro", "8", *words]) == 0
    degrees = ", ".join(f"{name} {value}" for name, value in {"tp": 2, **further}.items())
    assert f"h100-sxm, {degrees}, 1 x 4,096" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "stages", "schedule", "micro"),
    [
        ("llama-3-70b", "mi300x", 8, 4, "chimera", 8),
        ("llama-3-70b", "mi300x", 8, 4, "1f1b-v", 16),
        ("llama-3-70b", "mi300x", 8, 4, "hanayo", 16),
        ("llama-3-8b", "h100-sxm", 1, 8, "chimera", 32),
        ("gemma-2-9b", "h100-sxm", 1, 8, "zb-v", 16),
        ("gemma-2-9b", "h100-sxm", 1, 8, "v-half", 32),
        ("mixtral-8x7b", "h200-sxm", 2, 4, "1f1b-v", 16),
    ],
)
def test_a_step_simulates_the_passes_that_the_pipeline_draws(
    model: str, gpu: str, tp: int, stages: int, schedule: str, micro: int
) -> None:
    """Forwards with the exchanges and the host that they wait for; embedding and head in the chunks that have them,
    also where a V or a second copy of the model lays both on one device. The pipeline's hops are delays."""
    drawn = distsim.pipeline(model=model, gpu=gpu, tp=tp, stages=stages, schedule=schedule, micro=micro, seq=4096)
    job = {"model": model, "gpu": gpu, "gpus": tp * stages, "tp": tp, "pp": stages, "seq": 4096}
    step = distsim.step(**job, schedule=schedule, vpp=drawn.chunks, global_batch=micro)
    assert timeline_of(step).run.makespan == pytest.approx(drawn.makespan, rel=0.01)


@pytest.mark.parametrize(
    ("degrees", "ranks"),
    [({"ep": 4, "etp": 2}, 8), ({"ep": 4, "etp": 4, "tp": 2}, 16), ({"ep": 4, "etp": 1, "tp": 4}, 4),
     ({"ep": 4, "tp": 2}, 4), ({"ep": 4, "tp": 2, "framework": "megatron-lm"}, 8), ({"ep": 8, "cp": 4}, 8)],
)  # fmt: skip
def test_experts_have_as_many_replicas_as_their_own_degrees_need(degrees: dict[str, int], ranks: int) -> None:
    assert model_setup("mixtral-8x7b", 2, 4, None, seq=4096, **degrees).layout.gpus == 2 * ranks


def test_an_output_layer_in_one_chunk_of_a_v_keeps_others_waiting() -> None:
    """42 layers in 16 chunks leave the first stage embedding and output layer: one short chunk and one that is long."""
    job = {"model": "gemma-2-9b", "gpu": "h100-sxm", "gpus": 8, "pp": 8, "seq": 4096, "global_batch": 32}
    step = distsim.step(**job, schedule="1f1b-v")
    assert 1.25 < step.seconds / composed(step.work, step.timing, step.correction).seconds < 1.35


@pytest.mark.parametrize(("stages", "gpu", "where"), [
    (4, "h100-sxm", " within a node"), (8, "gb200", " within a domain"),
    (16, "h100-sxm", r" within a node, [\d.]+ us between nodes"),
])  # fmt: skip
def test_transfers_say_whether_one_replica_leaves_its_node(stages: int, gpu: str, where: str) -> None:
    setup = model_setup("llama-7b", stages, 16, None, gpu=gpu)
    assert re.search(rf"transfer [\d.]+ us{where}$", pipeline_text.model_words(setup, pass_times(setup), stages)[-1])


@pytest.mark.parametrize("schedule", ["dualpipe", "chimera", "dualpipe-v", "1f1b"])
def test_the_job_of_a_pipeline_has_its_schedule(capsys: pytest.CaptureFixture[str], schedule: str) -> None:
    words = ["pipeline", "--stages", "4", "--micro", "8", "--model", "qwen3-32b", "--gpu", "h100-sxm", "--tp", "2"]
    assert run([*words, "--schedule", schedule, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["job"]["schedule"] == answer["job"]["stated"]["schedule"] == answer["schedule"] == schedule
    again = distsim.Job(**answer["job"])
    assert distsim.step(again).to_dict()["job"]["schedule"] == schedule
    report = distsim.pipeline(stages=4, micro=8, model="qwen3-32b", gpu="h100-sxm", tp=2, schedule=schedule)
    assert report.to_dict()["job"] == answer["job"]
