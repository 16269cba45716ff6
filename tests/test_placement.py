"""Which stage holds which layers: recipes as published, and one partition for all that reads it."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distsim
from distsim import catalog
from distsim.cli.app import run
from distsim.engine.evidence import replay
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.placement import PLACES, by_recipe, stage_sums
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.fold import blocks, setup_at
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.layouts.space import groups
from distsim.engine.layouts.variants import FIXED, base_setup
from distsim.engine.layouts.ways import chunk_counts
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.timeline import timeline_of
from distsim.engine.validate import shipped_runs
from distsim.errors import DistsimError
from distsim.interop.runs import read_runs
from distsim.specs.job import Job
from distsim.specs.model import Model
from distsim.specs.stage_layers import PREDICTS, REST, parse

LLAMA: Model = catalog.load("models", "llama-7b")

# Layers, pp, vpp, layers of the first chunk, of those between, of the last. Sources: DeepSeek-V3 and Kimi-K2
# (61 layers) from NVIDIA-NeMo/Megatron-Bridge, recipes/deepseek/deepseek_v3.py and recipes/kimi/kimi_k2.py, and its
# layout Et|(tt|)*30mL of 32 chunks; Llama 3.1 405B (126) with pp 16 and vpp 8, its proxy of 30 layers, and the test
# gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split (6) of NVIDIA/Megatron-LM by
# --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split.
RECIPES = [
    (61, 4, 1, 16, 16, 13), (61, 8, 1, 8, 8, 5), (61, 4, 2, 8, 8, 5), (61, 16, 1, 4, 4, 1), (61, 8, 2, 4, 4, 1),
    (61, 4, 4, 4, 4, 1), (61, 2, 8, 4, 4, 1), (61, 8, 4, 1, 2, 0), (126, 16, 8, 0, 1, 0), (126, 16, 1, 7, 8, 7),
    (126, 8, 1, 15, 16, 15), (30, 4, 8, 0, 1, 0), (6, 4, 2, 0, 1, 0), (32, 4, 2, 4, 4, 4), (47, 12, 1, 4, 4, 3),
]  # fmt: skip


def of(layers: int) -> Model:
    return LLAMA.model_copy(update={"layers": layers, "name": f"llama of {layers}"})


@pytest.mark.parametrize(("layers", "pp", "vpp", "first", "between", "last"), RECIPES)
def test_recipes_as_published(layers: int, pp: int, vpp: int, first: int, between: int, last: int) -> None:
    assert by_recipe(of(layers), pp, vpp) == (first, *[between] * (pp * vpp - 2), last)


def test_a_filled_last_chunk_is_no_reason_to_fill_a_stage() -> None:
    """40 layers in 12 chunks: filled ones would put 12 layers on a stage, chunks of 3 and 4 need 10."""
    assert stage_sums(by_recipe(of(40), 4, 3), 4) == (10, 10, 10, 10)


@given(st.sampled_from(sorted(PLACES)), st.integers(1, 130), st.integers(1, 33), st.integers(1, 9))
@settings(deadline=None, max_examples=300)
def test_every_layer_is_placed_once(name: str, layers: int, pp: int, vpp: int) -> None:
    vpp = vpp if pp > 1 else 1
    try:
        chunks = PLACES[name](of(layers), pp, vpp)
    except DistsimError as error:
        assert pp * vpp > layers + 2 or (name == "even" and layers % (pp * vpp)), error
        return
    assert len(chunks) == pp * vpp
    assert sum(chunks) == layers
    assert min(chunks) >= 0
    if name == "recipe":
        assert max(chunks) == math.ceil(layers / (pp * vpp))
        assert all(chunks[1:-1])


def test_frameworks_that_need_equal_stages_say_so() -> None:
    for more in ({}, {"stage_layers": "11,11,10"}):
        with pytest.raises(DistsimError, match="chunks") as caught:
            resolve(Job(model="llama-7b", pp=3, gpus=3, framework="megatron-2021", **more))
        assert any("megatron-core" in hint for hint in caught.value.hints)


# --stage-layers

NOTATIONS = {
    "7,8,8,9": (7, 8, 8, 9), "4*15, 1": (*[4] * 15, 1), "3,...,2": (3, REST, 2), "...,13": (REST, 13),
    "Et*3|(tt|)*29,m|L": (3, *[2] * 29, PREDICTS, 0), "Et|(tt|)*30mL": (1, *[2] * 30, 0), "E||t|L": (0, 0, 1, 0),
    "E(t|)*2tL": (1, 1, 1), "Et*2|(tt|)*22t|(tt|)*7mL": (2, *[2] * 22, 1, *[2] * 7, 0),
}  # fmt: skip


@pytest.mark.parametrize("text", list(NOTATIONS))
def test_notations(text: str) -> None:
    assert parse(text) == NOTATIONS[text]


@pytest.mark.parametrize(
    "text",
    ["", ",", "a", "-1,33", "3,...,...,2", "t|tL", "Et|t", "Et|L|t", "EE|tL", "Em|tL", "tE|tL", "E(t|L", "E(t|)*9x|L",
     "((t*99999)*99999)*99999", "9*999999999", "1*999999,1*999999"],
)  # fmt: skip
def test_wrong_notations(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "llama-7b", "--pp", "2", f"--stage-layers={text}"]) == 2
    assert "--stage-layers" in capsys.readouterr().err


@given(st.lists(st.integers(0, 40), min_size=2, max_size=40).filter(lambda counts: sum(counts) > 0))
def test_a_layout_says_what_a_list_says(counts: list[int]) -> None:
    layout = "E" + "|".join(f"t*{count}" if count else "" for count in counts) + "L"
    assert parse(layout) == parse(",".join(map(str, counts))) == tuple(counts)


def chunks_of(**options: Any) -> tuple[int, ...]:
    return resolve(Job(model="deepseek-v3", gpus=64, **options)).chunk_layers


def test_outer_stages_are_stated_and_the_rest_is_shared() -> None:
    assert chunks_of(pp=16, stage_layers="3,...,2") == (3, *[4] * 14, 2)
    assert chunks_of(pp=4, stage_layers="...,13") == (16, 16, 16, 13)
    with pytest.raises(DistsimError, match="leaves 58 layers"):
        chunks_of(pp=4, stage_layers="3,...")


def test_chunks_follow_from_what_is_stated() -> None:
    setup = resolve(Job(model="deepseek-v3", gpus=64, pp=16, stage_layers="Et*3|(tt|)*29,m|L"))
    assert setup.layout.vpp == 2
    assert setup.layout.schedule == "interleaved-1f1b"
    assert setup.stage_layers == (5, *[4] * 13, 2, 2)
    assert setup.model.mtp_trained == 1
    with pytest.raises(DistsimError, match="mtp"):
        Job.read({"model": "deepseek-v3", "pp": 16, "stage_layers": "Et*3|(tt|)*29,m|L", "mtp": 2})
    halves = resolve(Job(model="llama-7b", gpus=4, pp=4, vpp=2, stage_layers="6,8,8,10"))
    assert halves.chunk_layers == (3, 4, 4, 5, 3, 4, 4, 5)
    with pytest.raises(DistsimError, match="cannot share equally"):
        resolve(Job(model="llama-7b", gpus=4, pp=4, vpp=2, stage_layers="7,8,8,9"))


# One partition, many readings

UNEVEN: list[dict[str, Any]] = [
    {"model": "deepseek-v3", "gpus": 64, "pp": 16}, {"model": "deepseek-v3", "gpus": 64, "pp": 8, "vpp": 4},
    {"model": "llama-3.1-405b", "gpus": 64, "pp": 16, "vpp": 8},
    {"model": "llama-3.1-405b", "gpus": 16, "pp": 8, "framework": "torchtitan"},
    {"model": "llama-7b", "gpus": 5, "pp": 5, "framework": "deepspeed"},
    {"model": "llama-7b", "gpus": 4, "pp": 4, "stage_layers": "E|(t*16|)*2L"},
]  # fmt: skip


@pytest.mark.parametrize("options", UNEVEN, ids=lambda options: f"{options['model']} {options['pp']}")
def test_stages_add_up_to_the_model(options: dict[str, Any]) -> None:
    setup = resolve(Job(**options))
    stages = build_stages(setup)
    assert [stage.layer_count for stage in stages] == list(setup.stage_layers)
    assert sum(setup.stage_layers) == setup.model.layers
    held = sum(parameter.elements * times for stage in stages for parameter, times in stage.parameters)
    padded = (setup.vocab_padded - setup.model.vocab) * setup.model.hidden * (1 if setup.model.tied_embeddings else 2)
    assert held == load_model(setup.model).parameters + padded


@pytest.mark.parametrize("options", UNEVEN, ids=lambda options: f"{options['model']} {options['pp']}")
def test_memory_traffic_and_time_read_the_same_stages(options: dict[str, Any]) -> None:
    job = Job(**options, seq=2048, global_batch=128, tp=1)
    setup = resolve(job)
    told = list(setup.stage_layers)
    assert distsim.step(job).to_dict()["job"]["stage_layers"] == told
    memory = distsim.memory(job)
    assert [stage.layers for stage in memory.stages] == told
    assert sum(stage.count * stage.layers for stage in distsim.step(job).work.stages) == setup.model.layers
    assert distsim.comm(job).to_dict()["job"]["stage_layers"] == told


@pytest.mark.parametrize("options", UNEVEN[:4], ids=lambda options: f"{options['model']} {options['pp']}")
def test_the_composed_step_is_that_of_the_event_simulation(options: dict[str, Any]) -> None:
    """Each chunk in its own time; the composition counts the slowest stage and one ramp."""
    report = distsim.step(Job(**options, gpu="h100-sxm", seq=2048, global_batch=512))
    line = timeline_of(report)
    y = report.setup.layout
    assert abs(line.slack) < 0.015 * report.seconds
    for stage in range(y.pp):
        mine = line.part_of(stage).micro_batch_seconds * y.micro_batches
        assert line.run.busy[stage] == pytest.approx(mine, rel=1e-9)


def test_a_v_has_both_arms_of_a_stage() -> None:
    setup = resolve(Job(model="deepseek-v3", gpus=8, pp=8, schedule="zb-v", framework="torchtitan"))
    assert setup.stage_layers == tuple(stage.layer_count for stage in build_stages(setup))
    assert sum(setup.stage_layers) == 61


@pytest.mark.parametrize("schedule", ["hanayo", "v-min"])
def test_no_step_is_shorter_than_its_slowest_stages_work(schedule: str) -> None:
    """Paths that go around between stages do not wait for the slowest, but that has its own work to do."""
    job: dict[str, Any] = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 4, "pp": 4, "global_batch": 64}
    step = distsim.step(**job, schedule=schedule, stage_layers="2,10,10,10")
    assert min(step.breakdown.values()) >= 0


@pytest.mark.parametrize("schedule", ["interleaved-1f1b", "zb-v"])
def test_stages_of_several_chunks_hold_what_is_stated_of_them(schedule: str) -> None:
    job: dict[str, Any] = {"model": "llama-7b", "gpus": 4, "pp": 4, "vpp": 2, "framework": "nemo-automodel"}
    report = distsim.memory(**job, schedule=schedule, stage_layers="4,8,8,12", global_batch=8)
    assert [stage.layers for stage in report.stages] == [4, 8, 8, 12]


def test_a_stage_without_layers_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["deepseek-v2", "--pp", "16", "--gpus", "64", "--explain", "--stage", "15"],
                  ["llama-7b", "--lora-rank", "8", "--pp", "2", "--gpus", "8", "--stage-layers", "0,32"]):  # fmt: skip
        assert run(["memory", *words]) in (0, 1)
    assert "Stage 15 holds no layer." in capsys.readouterr().out


def test_rounds_that_differ_are_longer_in_the_event_simulation() -> None:
    """40 layers in 16 chunks: all stages hold as many, but not in each round; the composition does not see it."""
    report = distsim.step(Job(model="llama-13b", gpu="h100-sxm", gpus=8, pp=8, vpp=2, global_batch=16, seq=2048))
    assert report.setup.chunk_layers == (*[3] * 8, *[2] * 8)
    assert -0.05 < timeline_of(report).slack / report.seconds < -0.02


def test_which_stages_are_uneven_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["deepseek-v3", "--pp", "16", "--ep", "8", "--gpus", "1024", "--gpu", "b200-sxm", "--zero", "1",
             "--seq", "4096"]  # fmt: skip
    for command in ("memory", "step", "comm"):
        assert run([command, *words]) == 0  # it fits, so that no mends are looked for
        assert "4 on stages 0-14, 1 on stage 15" in capsys.readouterr().err
    assert run(["memory", *words, "--stage-layers", "4*15,1"]) == 0
    assert "on stages" not in capsys.readouterr().err
    assert run(["memory", "llama-7b", "--pp", "4"]) == 0
    assert "on stages" not in capsys.readouterr().err


# Searches


@pytest.mark.parametrize(
    ("model", "gpus", "framework"),
    [("deepseek-v3", 256, "megatron-core"), ("llama-3.1-405b", 256, "megatron-lm"), ("deepseek-v3", 128, "torchtitan")],
)
def test_searched_layouts_are_those_of_step_and_memory(model: str, gpus: int, framework: str) -> None:
    job = Job(model=model, gpu="h200-sxm", gpus=gpus, global_batch=1024, seq=4096, framework=framework)
    bounds = parse_bounds({"pp": "4..32", "micro_batch": "1", "tp": "1,4", "cp": "1"}, [])
    uneven = 0
    for group in groups(base_setup(job, gpus), gpus, 1024, bounds):
        block = next(iter(blocks(group, Prices())), None)
        if block is None:
            continue
        places = numpy.argwhere(block.valid)
        for place in places[[0, -1]]:
            where = tuple(int(i + start) for i, start in zip(place, block.start, strict=True))
            options = setup_at(group.setup, group.layout_at(where))
            report = distsim.step(job.model_copy(update={**dict.fromkeys(FIXED), **options}))
            assert report.setup.stage_layers == group.setup.stage_layers
            assert report.seconds == pytest.approx(float(block.seconds[tuple(place)]), rel=1e-9)
            assert report.memory.peak == pytest.approx(float(block.peak[tuple(place)]), rel=1e-9)
            uneven += len(set(report.setup.chunk_layers)) > 1
    assert uneven > 3


def test_a_search_pipelines_layers_that_do_not_divide() -> None:
    job = Job(model="deepseek-v3", gpu="h200-sxm", gpus=512, global_batch=2048, seq=4096, framework="megatron-core")
    bounds = parse_bounds({"recompute": "none,full", "cp": "1", "micro_batch": "1", "zero": "1", "tp": "1..4"}, [])
    report = search(Request(job, (512,), bounds, top=3))
    best = report.best[0]
    assert best.report.setup.layout.pp > 1
    again = distsim.step(job.model_copy(update=best.options))
    assert again.seconds == pytest.approx(best.found.seconds, rel=1e-9)
    assert any("layers: " in note for note in report.notes)


def test_chunks_that_a_search_tries() -> None:
    assert chunk_counts(32, 4, False) == [1, 2, 4, 8]
    assert chunk_counts(61, 16, False) == [1, 2]
    assert chunk_counts(61, 8, False) == [1, 2, 3, 4]
    assert 8 in chunk_counts(126, 16, False)
    assert chunk_counts(61, 16, True) == [1, 2, 3]
    assert chunk_counts(61, 1, False) == [1]


# Measured runs

REPLAYED = {
    "mbridge-0042": (16, 16, 16, 13), "mbridge-0053": (16, 16, 16, 13), "mbridge-0085": (7, *[8] * 14, 7),
    "mbridge-0088": (32, 29), "mbridge-0181": (*[4] * 15, 1), "mbridge-0248": (7, *[8] * 6, 6),
    "dgxc-0164": (7, 8, 8, 7), "mlmci-0085": (1, 2, 2, 1), "nanotron-0668": (*[1] * 28, *[0] * 4),
    "dgxc-0251": (48,), "mlmci-0105": (6, 6),
}  # fmt: skip


def test_measured_runs_whose_layers_do_not_divide_are_replayed() -> None:
    found: dict[str, Setup] = {one.id: setup_of(one) for one in read_runs(shipped_runs()) if one.id in REPLAYED}
    assert {name: setup.stage_layers for name, setup in found.items()} == REPLAYED
    assert found["dgxc-0251"].layout.vpp == 1
    told = {one.id: replay(one).assumed for one in read_runs(shipped_runs()) if one.id in ("dgxc-0251", "mlmci-0105")}
    assert "vpp 12 has no effect" in told["dgxc-0251"]
    assert "etp 4 has no effect" in told["mlmci-0105"]
    assert found["mlmci-0105"].layout.etp == 1


# Multi-token prediction


def held(**options: Any) -> float:
    setup = resolve(Job(**options))
    return float(sum(p.elements * times for stage in build_stages(setup) for p, times in stage.parameters))


def test_a_module_of_multi_token_prediction_is_a_layer_and_what_joins_it() -> None:
    """DeepSeek-V3's README counts 14B in its module: 11.6B of its own, and copies of embedding and output layer."""
    own = held(model="deepseek-v3", gpus=64, mtp=1) - held(model="deepseek-v3", gpus=64)
    shared = 2 * 129_280 * 7_168
    assert own + shared == pytest.approx(13.5e9, rel=0.01)
    piped = held(model="deepseek-v3", gpus=64, pp=16, mtp=1) - held(model="deepseek-v3", gpus=64, pp=16)
    assert piped - own == shared / 2  # the last stage has a copy of the embedding


def test_it_is_on_the_last_stage_and_costs_time_memory_and_flops() -> None:
    job = {"model": "deepseek-v3", "gpu": "h100-sxm", "gpus": 256, "pp": 8, "vpp": 2, "ep": 32, "seq": 4096,
           "global_batch": 512}  # fmt: skip
    plain, more = distsim.step(Job(**job)), distsim.step(Job(**job, mtp=1))
    assert more.setup.stage_layers == plain.setup.stage_layers
    assert [one.layers for one in more.memory.stages][-1] == plain.memory.stages[-1].layers + 1
    for after, before in zip(more.memory.stages[:-1], plain.memory.stages[:-1], strict=True):
        assert after.peak == before.peak
    assert more.memory.stages[-1].peak > plain.memory.stages[-1].peak
    assert more.seconds > plain.seconds
    flops = [one.model_flops_per_second_per_gpu * one.seconds for one in (more, plain)]
    assert flops[0] / flops[1] == pytest.approx(1.04, abs=0.01)  # 260 over 249 GFLOP in Megatron-Bridge's tables
    line = timeline_of(more)
    assert abs(line.slack) < 0.03 * more.seconds  # two rounds of micro-batches
    for stage in range(8):
        mine = line.part_of(stage).micro_batch_seconds * more.setup.layout.micro_batches
        assert line.run.busy[stage] == pytest.approx(mine, rel=1e-9)


def test_a_search_trains_it_too() -> None:
    job = Job(model="deepseek-v3", gpu="h200-sxm", gpus=256, global_batch=1024, seq=4096, mtp=1)
    bounds = parse_bounds({"recompute": "full", "cp": "1", "micro_batch": "1", "zero": "1", "pp": "16", "tp": "1"}, [])
    best = search(Request(job, (256,), bounds, top=1)).best[0]
    assert distsim.step(job.model_copy(update=best.options)).seconds == pytest.approx(best.found.seconds, rel=1e-9)
    assert best.report.setup.model.mtp_trained == 1


def test_where_it_is_not_covered_it_is_refused() -> None:
    for more in ({"model": "nemotron-h-56b"}, {"model": "llama-7b", "lora_rank": 8}):
        with pytest.raises(DistsimError, match="multi-token prediction"):
            resolve(Job(**more, gpus=8, mtp=1))


def test_measured_runs_train_it_where_their_framework_does() -> None:
    wanted = {"mbridge-0042": 1, "mbridge-0247": 0, "mbridge-0282": 1, "mbridge-0053": 0, "dgxc-0008": 0}
    found = {one.id: setup_of(one) for one in read_runs(shipped_runs()) if one.id in wanted}
    assert {name: setup.model.mtp_trained for name, setup in found.items()} == wanted
    assert {setup.model.name for name, setup in found.items() if name != "mbridge-0053"} == {"deepseek-v3"}


def test_too_many_chunks_to_balance_are_told_by_their_options() -> None:
    with pytest.raises(DistsimError, match=r"128 chunks \(--pp 16 --vpp 8\) one of the 126 layers of llama-3.1-405b"):
        distsim.memory("llama-3.1-405b", gpu="h100-sxm", gpus=128, tp=8, pp=16, vpp=8, stage_layers="balanced")
