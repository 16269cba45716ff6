"""A step laid out in time: nothing is lost, nothing overlaps in a stream, and it ends when the step does."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.steps.beside import beside_products
from distsim.engine.steps.passes import STREAMS, Beside, Segment, Track
from distsim.engine.steps.timeline import Part, StepTimeline, timeline_of
from distsim.report.printer import plain
from distsim.report.step_gantt import page
from distsim.report.step_trace import events

if TYPE_CHECKING:
    from distsim.engine.steps.report import StepReport

GOLDEN = Path(__file__).parent / "golden"

JOBS = {
    "one gpu": {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": 1, "seq": 1024},
    "zero 3": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 3, "framework": "torchtitan",
               "recompute": "none"},
    "accumulated": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 2, "global_batch": 128},
    "3d": {"model": "llama-3-70b", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "pp": 4, "vpp": 2, "global_batch": 64},
    "experts": {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 16, "ep": 8, "zero": 1, "precision": "fp8"},
    "context": {"model": "llama-3-8b", "gpu": "b200-sxm", "gpus": 8, "cp": 8, "seq": 65536, "recompute": "full"},
    "selective": {"model": "gpt3-175b", "gpus": 64, "tp": 8, "pp": 8, "attention": "eager", "recompute": "selective",
                  "global_batch": 16, "framework": "megatron-lm"},
    "all forwards first": {"model": "llama-13b", "gpus": 16, "tp": 2, "pp": 8, "schedule": "gpipe", "global_batch": 8},
    "whole activations": {"model": "llama-7b", "gpu": "a100-pcie-80gb", "gpus": 8, "tp": 4, "pp": 2, "micro_batch": 4,
                          "global_batch": 16, "seq": 512, "sequence_parallel": False},
    "uneven": {"model": "llama-13b", "gpus": 4, "pp": 4, "global_batch": 8, "stage_layers": "13,10,10,7"},
    "zero bubble": {"model": "llama-13b", "gpus": 16, "tp": 2, "pp": 8, "schedule": "zb-h1", "global_batch": 16},
    "zero bubble, sharded": {"model": "llama-13b", "gpus": 16, "pp": 4, "schedule": "zb-h1", "zero": 3,
                             "global_batch": 32},
    "nothing hides shards": {"model": "llama-13b", "gpus": 16, "tp": 2, "pp": 4, "zero": 3, "global_batch": 32,
                             "dp_comm_overlap": False},
    "nothing hides, one stage": {"model": "llama-13b", "gpus": 16, "zero": 3, "global_batch": 32,
                                 "framework": "deepspeed", "dp_comm_overlap": False},
    "slow link": {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 3, "zero_group": 8, "sync": "local-sgd",
                  "sync_every": 100, "sync_gbps": 1},
    "offloaded": {"model": "llama-13b", "gpus": 8, "zero": 3, "offload": "activations", "framework": "fsdp",
                  "global_batch": 16},
    "offloaded optimizer": {"model": "llama-13b", "gpus": 8, "zero": 2, "offload": "optimizer",
                            "framework": "deepspeed", "global_batch": 32},
    "unlike runs": {"model": "llama-2-7b", "gpu": "h100-sxm", "gpus": 128, "framework": "nanotron", "tp": 4, "pp": 8,
                    "global_batch": 64, "seq": 4096},
}  # fmt: skip
STREAM_OF = {"tensor_parallel": "tp", "context_parallel": "cp", "expert_parallel": "ep", "data_parallel": "dp",
             "pipeline_transfer": "pp", "offload": "offload"}  # fmt: skip


@functools.cache
def laid_out(name: str) -> StepTimeline:
    return timeline_of(distsim.step(**JOBS[name]))


def summed(segments: list[Segment]) -> float:
    return sum(one.end - one.start for one in segments)


@pytest.mark.parametrize("name", list(JOBS))
def test_it_ends_with_the_step_and_no_stream_does_two_things_at_once(name: str) -> None:
    step = laid_out(name)
    latest = 0.0
    for stage in range(step.run.stages):
        lanes = defaultdict(list)
        for one in step.segments(stage):
            assert one.stream in STREAMS and -1e-12 <= one.start < one.end
            lanes[one.stream].append((one.start, one.end))
        lanes["path"] = [(one.start, one.end) for one in step.segments(stage) if one.exposed]
        for times in lanes.values():
            times.sort()
            assert all(after[0] >= before[1] - 1e-9 for before, after in itertools.pairwise(times))
            latest = max(latest, times[-1][1])
    assert math.isclose(latest, step.report.seconds, rel_tol=1e-9)


@pytest.mark.parametrize("name", list(JOBS))
def test_exposed_times_are_the_breakdown(name: str) -> None:
    """The slowest stage's passes and the longest end make every part of the breakdown but the bubble."""
    step = laid_out(name)
    longest = max(step.parts, key=lambda part: part.tail.now).stages[0]
    passes = [one for one in step.segments(step.slowest) if one.micro is not None and one.exposed]
    after = [one for one in step.segments(longest) if one.micro is None and one.exposed]
    found = {
        part: summed([one for one in passes if one.stream == stream]) / step.squeeze
        + summed([one for one in after if one.stream == stream])
        for part, stream in STREAM_OF.items()
    }
    computed = [one for one in passes if one.stream == "compute"]
    found["recompute"] = summed([one for one in computed if one.kind == "recompute"]) / step.squeeze
    found["compute"] = summed([one for one in computed if one.kind != "recompute"]) / step.squeeze
    found["optimizer"] = summed([one for one in after if one.kind == "optimizer"])
    found["other"] = sum(
        summed([one for one in some if one.stream == "other"]) / scale
        for some, scale in ((passes, step.squeeze), (after, 1))
    )
    for part, seconds in found.items():
        assert math.isclose(seconds, step.report.breakdown[part], rel_tol=1e-9, abs_tol=1e-12), part


@pytest.mark.parametrize("name", list(JOBS))
def test_links_are_busy_for_as_long_as_their_traffic_takes(name: str) -> None:
    step = laid_out(name)
    report = step.report
    work = next(one for one in report.work.stages if one.index == step.slowest)
    timing, traffic = report.timing, work.traffic
    wanted = (traffic["gather_forward"] + traffic["gather_once"] + traffic["gather_backward"]) * timing.gather_factor
    wanted += (
        traffic["reduce"]
        + traffic["reduce_each"]
        + traffic["dp_step"]
        + traffic["dp_ahead"]
        + traffic["dp_forward"]
        + traffic["dp_backward"]
        + traffic["dp_reduce"]
    ) * timing.data_factor + traffic["dp_stated"]
    found = sum(
        (one.end - one.start) / (step.squeeze if one.micro is not None else 1)
        for one in step.segments(step.slowest) if one.stream == "dp"
    )  # fmt: skip
    assert math.isclose(found, wanted * step.scale, rel_tol=1e-9, abs_tol=1e-12)
    hidden = [one for one in step.segments(step.slowest) if one.stream == "dp" and not one.exposed]
    if name in ("zero 3", "accumulated"):
        assert hidden
        path = [one for one in step.segments(step.slowest) if one.exposed and one.stream == "compute"]
        assert all(any(p.start < h.end and h.start < p.end for p in path) for h in hidden)


@pytest.mark.parametrize(
    ("name", "stream"), [("3d", "tp"), ("whole activations", "tp"), ("experts", "ep"), ("context", "cp")]
)
def test_exchanges_of_layers_are_drawn_whole(name: str, stream: str) -> None:
    """What hides beside products and attention too: as long as their traffic takes, with what is fitted of it."""
    step = laid_out(name)
    report = step.report
    work = next(one for one in report.work.stages if one.index == step.slowest)
    factor = {"tp": "tensor_factor", "ep": "expert_factor", "cp": "context_factor"}[stream]
    kinds = (f"{stream}_forward", f"{stream}_backward", *(["tp_beside"] if stream == "tp" else []))
    whole = sum(work.traffic[kind] for kind in kinds) * getattr(report.timing, factor) * step.scale
    drawn = [one for one in step.segments(step.slowest) if one.stream == stream and one.micro is not None]
    assert summed(drawn) / step.squeeze == pytest.approx(whole, rel=1e-6)
    hidden = summed([one for one in drawn if not one.exposed])
    assert (hidden > 0.01 * summed(drawn)) == (name != "experts")  # which travel in the GPU's queue there


@pytest.mark.parametrize("name", ["3d", "whole activations"])
def test_what_products_leave_of_exchanges_beside_them_is_waited_for_as_theirs(name: str) -> None:
    step = laid_out(name)
    report = step.report
    work = next(one for one in report.work.stages if one.index == step.slowest)
    numbers = {**work.traffic, "backward.cover": work.compute.phases["backward"].cover}
    micro_batches = report.setup.layout.micro_batches
    left = beside_products(numbers, {"micro_batches": micro_batches}, report.timing.model_dump()) * micro_batches
    drawn = [
        one for one in step.segments(step.slowest)
        if one.stream == "tp" and one.exposed and one.flows and one.flows[0].phase == "backward"
    ]  # fmt: skip
    theirs = summed([one for one in drawn if one.flows[0].hides])
    whole = left + work.traffic["tp_backward"] * report.timing.tensor_factor
    assert theirs / summed(drawn) == pytest.approx(left / whole, rel=1e-6) and theirs > 0


def test_the_composed_pipeline_is_the_simulated_one_where_its_closed_form_is_exact() -> None:
    for name in ("zero 3", "3d", "selective", "all forwards first", "whole activations"):
        assert abs(laid_out(name).slack) <= 2e-3 * laid_out(name).seconds
    assert laid_out("uneven").slack > 0  # an upper bound where the slowest stage is not the last
    assert laid_out("uneven").squeeze == 1


def test_layers_embedding_and_head_are_named_and_in_turn() -> None:
    names = [one.name for one in laid_out("zero 3").segments(0) if one.stream == "compute" and one.kind == "forward"]
    assert names == ["embedding", *(f"layer {i} of 32" for i in range(1, 33)), "head and loss"]
    back = [one.name for one in laid_out("zero 3").segments(0) if one.stream == "compute" and one.kind == "backward"]
    assert back == names[::-1]


def test_a_window_holds_what_touches_it() -> None:
    step = laid_out("3d")
    whole = list(step.segments(1))
    some = list(step.segments(1, 0.1, 0.3))
    assert some == [one for one in whole if one.end > 0.1 and one.start < 0.3]
    assert 0 < len(some) < len(whole)


@pytest.mark.parametrize("name", ["zero 3", "3d", "experts"])
def test_the_trace_has_what_viewers_need(name: str) -> None:
    step = laid_out(name)
    data = json.loads(json.dumps(events(step, (0.0, step.seconds))))
    slices = [one for one in data["traceEvents"] if one["ph"] == "X"]
    named = {(one["pid"], one["tid"]) for one in data["traceEvents"] if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in slices} == named
    assert {one["pid"] for one in slices} == set(range(step.run.stages))
    assert all(one["dur"] >= 0 and one["ts"] >= -1e-6 and one["name"] for one in slices)
    assert math.isclose(max(one["ts"] + one["dur"] for one in slices), step.seconds * 1e6, rel_tol=1e-9)
    told = [one["args"] for one in slices if "op" in one["args"]]
    assert told and all(one["group_size"] > 1 and one["group"] for one in told)
    assert all(one["bytes"] > 0 or one["calls"] < 1e-5 for one in told), "a short part of a small call is no byte"
    assert sum(data["otherData"]["breakdown_seconds"].values()) == pytest.approx(data["otherData"]["step_seconds"])


@pytest.mark.parametrize("width", [40, 80, 140, None])
@pytest.mark.parametrize("name", list(JOBS))
def test_the_drawing_fits_its_width(name: str, width: int | None) -> None:
    step = laid_out(name)
    drawn = [plain(line) for line in page(step, (0.0, step.seconds), step.slowest, width, True)]
    if width:
        assert max(map(len, drawn)) <= width
    assert any(line.strip().startswith("compute") for line in drawn)
    ascii_only = [plain(line) for line in page(step, (0.0, step.seconds), step.slowest, width, False)]
    assert all(line.isascii() for line in ascii_only)


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", ["zero 3", "3d"])
def test_what_the_terminal_shows(name: str, width: int) -> None:
    """Figures may move with calibration: compared is the frame, and that rows are drawn in their own characters."""
    step = laid_out(name)
    drawn = [plain(line) for line in page(step, (0.0, step.seconds), step.slowest, width, True)]
    rows = {line.split("│")[0].strip(): line.split("│")[1] for line in drawn if "│" in line}
    wanted = ["0", "1", "2", "3", "compute", "tensor", "data", "pipeline", "other"] if name == "3d" else [
        "compute", "data", "other"]  # fmt: skip
    assert list(rows) == wanted
    assert {len(row) for row in rows.values()} == {width - 30}
    assert set(rows["compute"]) <= set("─█◆ ") and {"─", "█"} <= set(rows["compute"])
    assert set(rows["data"]) <= set("▞· ")
    assert rows["other"].rstrip().endswith("~")
    if name == "3d":
        assert re.match(r"\s*─", rows["0"]) and rows["3"].startswith(" ")


def toy() -> StepTimeline:
    """Two stages whose passes are made by hand, so that no calibration moves them."""
    forward, backward, tail = Track(), Track(), Track()
    forward.run("compute", "forward", "layers", 1.0)
    forward.run("tp", "exchange", "tensor parallel layers", 0.25)
    backward.run("dp", "gather", "gather parameters", 0.25)
    backward.beside("dp", "reduce", "reduce gradients", backward.now, 0.5, None)
    backward.run("compute", "backward", "layers", 2.0)
    tail.run("dp", "reduce", "reduce gradients", 0.5)
    tail.run("compute", "optimizer", "optimizer step", 0.5)
    run = distsim.pipeline(stages=2, micro=4, forward=forward.now, backward=backward.now)
    none = Beside(0.0, 0.0, None)
    passes = {"F": forward, "B": backward}
    part = Part((0, 1), (passes,), forward.now + backward.now, none, none, tail, none)
    report = SimpleNamespace(seconds=run.makespan + tail.now + 0.5)
    return StepTimeline(cast("StepReport", report), (part,), run, run.makespan, 1.0)


@pytest.mark.parametrize("width", [80, 140])
def test_the_drawing_of_a_known_step(width: int) -> None:
    step = toy()
    drawn = [plain(line) + "\n" for line in page(step, (0.0, step.seconds), 1, width, True)]
    assert "".join(drawn) == (GOLDEN / f"step_gantt_{width}.txt").read_text(encoding="utf-8")


def test_the_command_draws_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.json"
    job = ["step", "llama-7b", "--gpu", "h100-sxm", "--gpus", "8", "--zero", "3"]
    assert run([*job, "--gantt", "--trace", str(file), "--from", "10ms", "--to", "100ms"]) == 0
    out = capsys.readouterr().out
    assert "Step timeline" in out and "drawn from 10 ms to 100 ms" in out
    assert json.loads(file.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--from", "1s"], "--from 1s has no effect here"),
        (["--gantt", "--json"], "--gantt draws and --json prints data"),
        (["--stage", "0"], "--stage 0 has no effect without --gantt"),
        (["--gantt", "--stage", "1"], "there is no stage 1: the job has 1 stage"),
        (["--gantt", "--from", "1h"], "--from 1h is outside the step"),
        (["--gantt", "--from", "9000"], "9000 is 2.5 h, which is outside the step"),
        (["--gantt", "--from", "9000"], "seconds; did you mean --from 9000ms?"),
        (["--gantt", "--from", "2ms", "--to", "1ms"], "--from 2ms is not before --to 1ms"),
        (["--gantt", "--to", "soon"], "--to 'soon' is not a quantity in s"),
    ],
)
def test_wrong_input(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["step", "llama-7b", "--gpus", "8", "--zero", "3", *options]) == 2
    assert told in capsys.readouterr().err
