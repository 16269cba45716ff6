"""What is held between the input gradient and the weight gradient of a split backward pass."""

from __future__ import annotations

import itertools

import numpy
import pytest

import distsim
from distsim.cli.app import run
from distsim.engine.timelines.in_flight import flights_of
from distsim.engine.timelines.schedule_shape import flights, in_flight, weight_versions
from distsim.errors import DistsimError
from distsim.schedules.registry import SCHEDULES, build

SPLIT = [name for name, kind in SCHEDULES.items() if kind.splits]
SHARES = (0.0, 0.2, 0.5, 0.8, 1.0, 1.3, 2.0, 6.0, 40.0)
"""Bytes that weight gradients read over all that is kept: more than 1 under full recomputation."""


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("stages", [2, 3, 4, 6, 8])
def test_moments_hold_the_peak_of_the_order_whatever_the_two_sizes_are(name: str, stages: int) -> None:
    chunks = SCHEDULES[name].default_chunks
    for micro in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 18, 24, 40, 48):
        try:
            schedule = build(name, stages, micro, chunks)
        except DistsimError:
            continue
        for stage, order in enumerate(schedule.orders):
            told = flights(name, stages, micro, chunks, stage)
            assert told.all[0].before == in_flight(name, stages, micro, chunks, stage)
            for share, (moments, few) in itertools.product(SHARES, zip(flights_of(order), told, strict=True)):
                peak = max(before + share * waiting for before, waiting in moments) / chunks
                found = max(one.before + share * one.waiting for one in few)
                assert found == pytest.approx(peak), (micro, stage, share)


def test_the_paper_counts_as_many() -> None:
    """Qi et al. 2023, section 2.3: (p - i + 1) M_B + (i - 1) M_W under ZB-H1, (2p - 2i + 1) M_B + (2i - 2) M_W under
    ZB-H2."""
    p = 8
    for i in range(1, p + 1):
        assert flights("zb-h1", p, 64, 1, i - 1).all[0] == (p - i + 1, i - 1)
        assert flights("zb-h2", p, 64, 1, i - 1).all[0] == (2 * p - 2 * i + 1, 2 * i - 2)


def test_arrays_of_layouts_and_of_schedules() -> None:
    schedule = numpy.array(["1f1b", "zb-h1", "zb-h2", "v-half", "zb-v"]).reshape(-1, 1)
    chunks = numpy.array([1, 1, 1, 2, 2]).reshape(-1, 1)
    micro = numpy.array([1, 3, 8, 9, 24])
    told = flights(schedule, 4, micro, chunks, 2)
    for row, name in enumerate(schedule.ravel().tolist()):
        for column, m in enumerate(micro.tolist()):
            alone = flights(name, 4, m, int(chunks[row, 0]), 2)
            for share in SHARES:
                here = [numpy.broadcast_to(one.before + share * one.waiting, (5, 5))[row, column] for one in told.all]
                assert max(here) == pytest.approx(max(one.before + share * one.waiting for one in alone.all))


def test_weight_gradients_read_inputs_and_gradients_of_outputs() -> None:
    """Qi et al. 2023, table 1: 32 sbh of what a GPT's layer keeps, 14 of inputs and 18 of gradients."""
    job = {"gpu": "h100-sxm", "gpus": 4, "pp": 4, "seq": 1024, "global_batch": 16, "schedule": "zb-h1"}
    report = distsim.memory("gpt3-13b", **job)
    layers, sbh = report.stages[1].layers, 1024 * report.setup.model.hidden
    assert report.stages[1].waiting.each == 32 * sbh * layers
    assert report.stages[1].saved.layers > 34 * sbh * layers
    shared = distsim.memory("gpt3-13b", **{**job, "gpus": 8}, tp=2).stages[1]
    # inputs in shards of the sequence; gradients of column-parallel products by width, of row-parallel ones whole
    assert shared.waiting.each == (32 / 2 + 4 / 2) * sbh * layers
    again = distsim.memory("gpt3-13b", **job, recompute="full").stages[1]
    assert again.waiting.each == 32 * sbh * layers  # made again for input gradients, and read by weight gradients


def test_the_first_stage_holds_what_1f1b_does_and_the_others_as_many() -> None:
    job = {"model": "llama-3-8b", "gpu": "b200-sxm", "gpus": 4, "pp": 4, "seq": 8192, "global_batch": 32}
    plain, split = (distsim.memory(**job, schedule=name).stages for name in ("1f1b", "zb-h1"))
    assert split[0].peak == plain[0].peak
    for stage in (1, 2, 3):
        waits = split[stage].waiting
        assert waits.flight == (4 - stage, stage)
        more = split[stage].categories["activations"] - plain[stage].categories["activations"]
        assert more == pytest.approx(stage * waits.each)


@pytest.mark.parametrize(
    ("tp", "shared", "plain", "split"),
    [(1, False, [25.4, 19.1, 12.8, 12.4], [25.4, 25.4, 25.4, 26.8]),
     (8, False, [8.7, 6.5, 4.4, 2.3], [8.7, 8.7, 8.7, 9.0]), (8, True, [3.2, 2.4, 1.6, 1.6], [3.8, 4.5, 5.2, 6.0])],
)  # fmt: skip
def test_gradients_that_wait_whole_fill_later_stages(
    tp: int, shared: bool, plain: list[float], split: list[float]
) -> None:
    """What docs/memory.md tells: only with sequence parallelism do later stages need more than the first."""
    job = {"gpu": "h100-sxm", "tp": tp, "pp": 4, "gpus": 8 * tp, "global_batch": 16, "seq": 4096}
    for name, want in (("1f1b", plain), ("zb-h1", split)):
        stages = distsim.memory("llama-2-13b", **job, schedule=name, sequence_parallel=shared).stages
        assert [round(stage.categories["activations"] / 2**30, 1) for stage in stages] == want


def test_what_waits_is_listed_and_adds_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # rows in one line each
    words = "memory gpt3-13b --tp 8 --pp 4 --gpus 32 --global-batch 16 --gpu h100-sxm --explain --schedule"
    assert run([*words.split(), "zb-h1"]) in (0, 1)
    table = capsys.readouterr().out.partition("Waits for weight gradients of a dense layer")[2].partition("\n\n")[0]
    rows = [line.split() for line in table.splitlines()[2:]]
    sizes = [int(row[-3].replace(",", "")) for row in rows]
    assert sum(sizes[:-1]) == sizes[-1] and rows[-1][0] == "total"
    report = distsim.memory("gpt3-13b", tp=8, pp=4, gpus=32, global_batch=16, gpu="h100-sxm", schedule="zb-h1")
    assert sizes[-1] * report.stages[0].layers == report.stages[0].waiting.each
    whole = [int(row[-3].replace(",", "")) for row in rows if row[1] == "mlp.down.output_gradient"]
    assert whole == [2 * report.setup.layout.seq * report.setup.model.hidden]  # of all ranks' tokens
    assert run([*words.split(), "1f1b"]) in (0, 1)
    assert "Waits for weight gradients" not in capsys.readouterr().out


def test_autograd_keeps_the_graph_until_weight_gradients_are_made() -> None:
    job = {"gpu": "b200-sxm", "gpus": 4, "pp": 4, "seq": 8192, "global_batch": 32, "schedule": "zb-v", "vpp": 2}
    torch, other = distsim.memory("llama-3-8b", **job, framework="torchtitan"), distsim.memory("llama-3-8b", **job)
    saved = torch.stages[1].saved.layers
    assert torch.stages[1].waiting.each > saved > 0
    assert other.stages[1].waiting.each < torch.stages[1].waiting.each


def test_frozen_weights_read_nothing_later() -> None:
    job = {"gpu": "h100-sxm", "gpus": 4, "pp": 4, "seq": 2048, "global_batch": 16, "schedule": "zb-h1"}
    whole, adapted = (
        distsim.memory("llama-2-7b", **job, **some) for some in ({}, {"lora_rank": 8, "lora_targets": "q,v"})
    )
    plain = distsim.memory("llama-2-7b", **{**job, "schedule": "1f1b"})
    assert adapted.stages[1].waiting.each < whole.stages[1].waiting.each
    assert all(stage.waiting == ((stage.in_flight, 0), 0) for stage in plain.stages)


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "pipedream-2bw"])
def test_stages_keep_the_versions_of_their_weights_that_the_schedule_does(schedule: str) -> None:
    job = {"gpu": "h100-sxm", "gpus": 4, "pp": 4, "seq": 1024, "global_batch": 32}
    plain, report = distsim.memory("llama-7b", **job), distsim.memory("llama-7b", **job, schedule=schedule)
    versions = distsim.pipeline(4, 32, schedule).weight_versions
    for one, stage, count in zip(plain.stages, report.stages, versions, strict=True):
        assert stage.weight_versions == count
        assert stage.categories["parameters"] == count * one.categories["parameters"]
        for name in ("gradients", "optimizer", "activations"):
            assert stage.categories[name] == one.categories[name]
    noted = [note for note in report.setup.notes if "versions" in note]
    assert bool(noted) == (schedule != "1f1b")


def test_versions_of_weights_in_arrays_of_layouts() -> None:
    micro, schedule = numpy.array([1, 2, 9]), numpy.array(["1f1b", "pipedream", "pipedream-2bw"]).reshape(-1, 1)
    for stage in range(4):
        found = weight_versions(schedule, 4, micro, stage)
        for row, name in enumerate(schedule.ravel().tolist()):
            assert found[row].tolist() == [build(name, 4, m).weight_versions[stage] for m in micro.tolist()]


@pytest.mark.parametrize(("schedule", "told"), [("1f1b", False), ("pipedream", True), ("pipedream-2bw", True)])
def test_bubbles_of_pipelines_that_never_empty_are_those_of_the_first_step(schedule: str, told: bool) -> None:
    report = distsim.step(model="llama-7b", gpus=4, pp=4, global_batch=32, schedule=schedule)
    assert any("is in the first step only" in note for note in report.notes) is told
