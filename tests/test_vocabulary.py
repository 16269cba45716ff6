"""Vocabulary shared by all stages of a pipeline, and stages of equal work."""

from __future__ import annotations

import math
import re
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distsim
from distsim.cli.app import run
from distsim.engine.exchanges.pipeline import pipeline_flows
from distsim.engine.footprint.weight_passes import head_waiting
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.placement import balanced
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.timeline import timeline_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.layers.ledger import flops_forward, parameters_of
from distsim.specs.job import Job
from distsim.specs.layout import Layout

WAYS = ("vocab-1", "vocab-2", "interlaced")
TIED, UNTIED = "gemma-7b", "llama-3-8b"


def setup(model: str = TIED, **options: Any) -> Setup:
    given = {"gpu": "a100-sxm4-80gb", "gpus": 8, "pp": 4, "global_batch": 64, "seq": 2048, **options}
    return resolve(Job.read({"model": model, "framework": "megatron-lm", **given}))


@pytest.mark.parametrize("model", [TIED, UNTIED])
@pytest.mark.parametrize("way", WAYS)
def test_shards_of_the_vocabulary_sum_to_the_whole(model: str, way: str) -> None:
    whole, shared = setup(model), setup(model, vocab_parallel=way)
    held = sum(p.elements * times for stage in build_stages(shared) for p, times in stage.parameters)
    padded = (shared.vocab_padded - shared.model.vocab) * shared.model.hidden
    assert held == load_model(shared.model).parameters + padded * (1 if shared.model.tied_embeddings else 2)
    products = [
        sum(flops_forward(op for op in stage.head.operations if op.name == "head") for stage in build_stages(one)
            if stage.head) / one.vocab_padded
        for one in (whole, shared)
    ]  # fmt: skip
    assert products[0] == pytest.approx(products[1], rel=1e-12)
    rows = {parameters_of(s.embedding.operations)[0].elements for s in build_stages(shared) if s.embedding}
    assert len(rows) == 1


def test_positions_and_last_norm_stay_at_the_ends() -> None:
    stages = build_stages(setup("gpt3-6.7b", vocab_parallel="vocab-1"))
    names = [{p.name for p, _ in stage.parameters} for stage in stages]
    assert ["embedding.position_weight" in held for held in names] == [True, False, False, False]
    assert ["final_norm.weight" in held for held in names] == [False, False, False, True]


@pytest.mark.parametrize(("way", "first"), [("", 4), ("vocab-1", 6), ("vocab-2", 5), ("interlaced", 6)])
def test_micro_batches_in_flight(way: str, first: int) -> None:
    stages = build_stages(setup(vocab_parallel=way or None))
    assert stages[0].in_flight == first
    assert [a.in_flight > b.in_flight for a, b in pairwise(stages)] == [True] * 3


def test_no_more_in_flight_than_there_are() -> None:
    assert build_stages(setup(vocab_parallel="vocab-1", global_batch=4))[0].in_flight == 2


@pytest.mark.parametrize("way", WAYS)
def test_every_stage_takes_part_in_each_exchange(way: str) -> None:
    one = setup(vocab_parallel=way)
    per_stage = [
        [(f.op, f.phase, f.bytes_logical, f.calls) for f in pipeline_flows(one, stage) if "vocab" in f.purpose]
        for stage in build_stages(one)
    ]
    assert all(flows == per_stage[0] for flows in per_stage)
    wide = one.layout.tokens * one.model.hidden * 2
    assert sorted(size for _, _, size, _ in per_stage[0])[1:] == [wide] * 4
    sent = sum(size * calls for _, _, size, calls in per_stage[0] if size != wide)  # maximum, sum, target's logit
    assert sent == 3 * 4 * one.layout.tokens * one.layout.micro_batches
    assert {calls for _, _, size, calls in per_stage[0] if size == wide} == {one.layout.micro_batches}
    assert not any("tied" in f.purpose for stage in build_stages(one) for f in pipeline_flows(one, stage))


def test_a_large_vocabulary_no_longer_sets_the_pace() -> None:
    seconds = {way: distsim.step(setup(vocab_parallel=way or None).job).seconds for way in ("", *WAYS)}
    even = distsim.step(setup(stage_layers="balanced").job).seconds
    assert max(seconds[way] for way in WAYS) < even < seconds[""]
    report = distsim.step(setup(vocab_parallel="vocab-2").job)
    busy = [stage.compute.phases["forward"].matmul for stage in report.work.stages]
    assert max(busy) < 1.02 * min(busy)


def played(stages: int, micro: int, vocabulary: float, barriers: int, sent: float) -> float:
    """Seconds of 1F1B (a forward takes one, a backward two) whose stages all run passes for the vocabulary, with
    ``barriers`` between a micro-batch's last forward and its backward, each before an exchange; one event at a time."""
    first, second = (vocabulary, 2 * vocabulary) if barriers == 2 else (2 * vocabulary, vocabulary)
    seconds = {"T": second, "S": first, "B": 2.0, "F": 1.0}
    orders = []
    for stage in range(stages):
        ahead = min(micro, stages - stage + barriers)
        order = [("F", one) for one in range(ahead)]
        for one in range(micro):
            order += [("B", one)] + [("F", one + ahead)] * (one + ahead < micro)
        orders.append(
            {"FB": order, "S": [("S", one) for one in range(micro)], "T": [("T", one) for one in range(micro)]}
        )
    ends: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages

    def ready(kind: str, stage: int, one: int) -> float:
        last, never = stages - 1, float("inf")
        if kind == "F":
            return ends.get(("F", stage - 1, one), never) if stage else 0.0
        if kind == "S":
            return ends.get(("F", last, one), never) + sent
        if kind == "B" and stage < last:
            return max(ends.get(("B", stage + 1, one), never), ends.get(("F", stage, one), never))
        all_of = "S" if kind == "T" or barriers == 1 else "T"
        return max(ends.get((all_of, other, one), never) for other in range(stages)) + sent

    while any(rest for order in orders for rest in order.values()):
        start, _, stage, queue = min(
            (max(free[stage], ready(*(rest[0][0], stage, rest[0][1]))), "TSBF".index(rest[0][0]), stage, name)
            for stage, order in enumerate(orders) for name, rest in order.items() if rest
        )  # fmt: skip
        kind, one = orders[stage][queue].pop(0)
        ends[kind, stage, one] = free[stage] = start + seconds[kind]
    return max(free)


@pytest.mark.parametrize(("stages", "micro"), [(4, 8), (4, 2), (8, 24)])
def test_barriers_hide_behind_other_micro_batches(stages: int, micro: int) -> None:
    """Layers fill and drain the pipeline, the vocabulary does not; exchanges hide but for the last micro-batch's."""
    for vocabulary in (0.1, 0.6):
        for barriers in (1, 2):
            alone = (stages - 1) * 3 + micro * (3 + 3 * vocabulary)
            assert played(stages, micro, vocabulary, barriers, 0.0) == pytest.approx(alone)
            assert alone - 1e-9 <= played(stages, micro, vocabulary, barriers, 0.2) < alone + 0.2 * (1 + barriers)


def test_each_way_waits_for_what_it_cannot_hide() -> None:
    """Interlaced, every micro-batch waits for all that the ledger prices; with barriers most of it hides. The bubble is
    that of layers alone."""
    found = {way: distsim.step(setup(vocab_parallel=way).job) for way in WAYS}
    assert found["vocab-1"].seconds == found["vocab-2"].seconds < found["interlaced"].seconds
    report = found["interlaced"]
    priced = [row.seconds for row in distsim.comm(report.setup.job).collectives if "vocabulary" in row.purpose]
    scale = math.exp(report.correction.logarithm)
    waited = report.breakdown["pipeline_transfer"] / scale
    slowest = timeline_of(report).slowest  # sends to another node where its next stage is there
    sent = sum(one.traffic["pp_forward"] + one.traffic["pp_backward"] for one in report.work.stages
               if one.index == slowest) * report.timing.pipeline_factor  # fmt: skip
    assert waited - sent == pytest.approx(sum(priced), rel=0.01)
    few = found["vocab-2"].breakdown["pipeline_transfer"] / scale
    assert few < 0.5 * sum(priced)
    bubbles = [found[way].breakdown["pipeline_bubble"] / math.exp(found[way].correction.logarithm) for way in WAYS]
    assert bubbles[2] == pytest.approx(bubbles[1], rel=1e-6)
    busy = report.breakdown["compute"] / report.setup.layout.micro_batches
    assert report.breakdown["pipeline_bubble"] < 0.92 * 3 * busy  # a tenth of the products is the vocabulary's


def test_explained_figures_are_those_of_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["step", TIED, "--pp", "4", "--gpus", "8", "--framework", "megatron-lm", "--vocab-parallel", "interlaced"]
    assert run([*words, "--global-batch", "64", "--seq", "2048", "--explain"]) == 0
    told = capsys.readouterr().out
    assert "exposed vocabulary parallel exchanges" in told and "one micro-batch without vocabulary parallelism" in told
    ramp = re.search(r"pipeline ramp [\s\S]*?\n +ramp_seconds[\s\S]*?= ([0-9.]+) s\n", told)
    shown = re.search(r"pipeline bubble +([0-9.]+) ms", told)
    factor = re.search(r"correction factor from similar runs: ([0-9.]+)", told)
    assert ramp and shown and factor
    assert float(ramp[1]) * float(factor[1]) == pytest.approx(float(shown[1]) / 1000, rel=0.01)


@pytest.mark.parametrize("framework", ["megatron-lm", "nanotron", "megatron-deepspeed"])
def test_no_layer_makes_room_for_a_shared_output_layer(framework: str) -> None:
    """Rules that count embedding and output layer as layers do so where one stage holds them."""
    for pp in (4, 8):
        shared = setup(framework=framework, pp=pp, vocab_parallel="vocab-1")
        counts = shared.chunk_layers
        assert sum(counts) == 28 and max(counts) - min(counts) <= 1


def test_memory_is_that_of_its_shares() -> None:
    ends, shared = (distsim.memory(setup(vocab_parallel=way).job) for way in (None, "vocab-2"))
    kinds = ("parameters", "optimizer")
    states = [sum(stage.categories[kind] for stage in one.stages for kind in kinds) for one in (ends, shared)]
    table = setup().vocab_padded * setup().model.hidden
    assert states[0] - states[1] == pytest.approx(table * (2 + 12), rel=1e-6)  # a tied matrix is held once, not twice


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"pp": 1}, "no effect with pp 1"), ({"vpp": 7}, "not supported by schedule interleaved-1f1b"),
     ({"schedule": "gpipe"}, "not supported by schedule gpipe")],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DistsimError, match=problem):
        setup(vocab_parallel="vocab-1", **options)


def test_multi_token_prediction_is_refused() -> None:
    with pytest.raises(DistsimError, match="--mtp 1 adds others"):
        resolve(Job(model="deepseek-v3", gpus=64, pp=16, mtp=1, vocab_parallel="vocab-1"))


def test_the_command_line_names_the_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", TIED, "--pp", "4", "--gpus", "8", "--vocab-parallel", "vocab-3"]) == 2
    assert "vocab-1, vocab-2, interlaced" in capsys.readouterr().err
    assert run(["step", TIED, "--pp", "4", "--gpus", "8", "--vocab-parallel", "vocab-1", "--gantt"]) == 0
    assert "vocab-1 over the stages" in capsys.readouterr().out


# --stage-layers balanced


def slowest(counts: tuple[int, ...], layer: float, head: float) -> float:
    return max([count * layer for count in counts[:-1]] + [counts[-1] * layer + head])


@given(st.integers(2, 5), st.sampled_from([1, 2, 8, 32]), st.booleans())
@settings(deadline=None, max_examples=25)
def test_balanced_is_the_best_split(pp: int, thousands: int, shared: bool) -> None:
    model = load_model(UNTIED).spec.model_copy(update={"layers": 9, "vocab": thousands * 8192})
    layout = Layout(pp=pp, seq=2048, vocab_parallel="vocab-1" if shared else "")
    found = balanced(model, layout)
    assert len(found) == pp
    assert sum(found) == 9
    width = model.heads * model.head_dim
    products = 2 * model.hidden * (width * 2 + 2 * model.kv_heads * model.head_dim + 3 * model.ffn)
    layer = products + 4 * 2048 * width  # scores and values, counted dense
    head = 0 if shared else 2 * model.hidden * model.vocab
    cuts = combinations(range(1, 10), pp - 1)  # the last stage may hold the head alone
    every = [tuple(b - a for a, b in pairwise((0, *ends, 9))) for ends in cuts]
    assert slowest(found, layer, head) <= min(slowest(one, layer, head) for one in every) * 1.0001


def test_balanced_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    one = setup(stage_layers="balanced")
    assert one.stage_layers == (7, 8, 8, 5)
    assert any("balanced by their FLOPs" in note for note in one.notes)
    assert run(["memory", TIED, "--pp", "4", "--gpus", "8", "--stage-layers", "balanced"]) == 0
    assert "5 on stage 3" in capsys.readouterr().err


# Replays

CELLS = {"id": "r", "source": "s", "model": "GPT", "family": "gpt", "layers": "32", "hidden": "3072", "heads": "24",
         "kv_heads": "24", "head_dim": "128", "ffn_hidden": "12288", "gated_mlp": "0", "vocab": "262144",
         "tied_embeddings": "0", "gpu": "a100-sxm4-80gb", "n_gpus": "8", "tp": "1", "pp": "8", "dp": "1",
         "seq_len": "2048", "year": "2024",
         "micro_batch": "1", "global_batch": "128", "precision": "bf16", "framework": "megatron-lm"}  # fmt: skip


@pytest.mark.parametrize(
    ("notes", "way", "schedule", "layers"),
    [("baseline, 1F1B", "", "1f1b", (4,) * 8), ("method Vocab-2", "vocab-2", "1f1b", (4,) * 8),
     ("interlaced pipeline", "interlaced", "1f1b", (4,) * 8), ("V-Half, vocab-1", "vocab-1", "v-half", (4,) * 8),
     ("Redis", "", "1f1b", (5, 6, 6, 6, 6, 3, 0, 0)), ("ZB-V", "", "zb-v", (4,) * 8),
     ("DualPipeV", "", "dualpipe-v", (4,) * 8), ("DualPipe-V", "", "dualpipe-v", (4,) * 8)],
)  # fmt: skip
def test_notes_tell_how_a_pipeline_ran(notes: str, way: str, schedule: str, layers: tuple[int, ...]) -> None:
    one = setup_of(Run({**CELLS, "notes": notes}, 2))
    assert one.layout.vocab_parallel == way
    assert one.layout.schedule == schedule
    if notes == "Redis":
        assert sum(one.stage_layers) == 32
        assert one.stage_layers[-1] < 4
    else:
        assert one.stage_layers == layers


def test_no_stage_keeps_a_shared_output_layer_for_its_weight_gradient() -> None:
    waiting = []
    for way in (None, "vocab-1"):
        one = setup(vocab_parallel=way)
        waiting.append(head_waiting(one, build_stages(one)[-1]))
    assert waiting[0] > waiting[1] == 0
