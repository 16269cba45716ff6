"""Memory of stages whose model chunks are unequal, and of ranks that hold two copies of the model, against a walk of
the schedule's own order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import distsim
from distsim import catalog
from distsim.engine.footprint.in_flight_bytes import weighed
from distsim.engine.footprint.saved import kinds_saved_bytes, saved_of
from distsim.engine.footprint.weight_passes import head_waiting, kinds_waiting
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stage_chunks import chunk_sizes, chunks_of
from distsim.engine.jobs.stages import stage_at
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.fold import blocks
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.space import groups
from distsim.engine.layouts.variants import base_setup
from distsim.engine.timelines.chunk_passes import Vector, chunk_passes, highest, interleaved_passes
from distsim.engine.timelines.in_flight import Held, passes_of
from distsim.errors import DistsimError
from distsim.schedules.action import Action
from distsim.schedules.registry import build
from distsim.specs.job import Job
from tests.test_search import _same

CHUNKED = {"interleaved-1f1b": 3, "looped-bfs": 3, "interleaved-zb": 3, "zb-v": 2, "v-half": 2, "v-min": 2,
           "1f1b-v": 2, "dualpipe-v": 2, "hanayo": 4}  # fmt: skip
TINY: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 4, "pp": 4, "seq": 512}
Bytes = Mapping[int, float]


def walk(order: Sequence[Action], kept: Bytes, waits: Bytes) -> float:
    """The most that a stage holds when a forward has ended or a backward begins: what each chunk keeps from forward to
    its input gradient, and from there to its weight gradient."""
    held = most = 0.0
    for kind, chunk, _, *pair in order:
        if kind in ("F", "FB"):
            held += kept[chunk]
        if kind == "W":
            held -= waits[chunk]
            continue
        most = max(most, held)
        if kind != "F":
            held -= kept[pair[0] if pair else chunk]
            held += waits[chunk] if kind == "I" else 0
    return most


def order_of(setup: Setup, stage: int) -> Sequence[Action]:
    layout = setup.layout
    return build(layout.schedule, layout.pp, layout.micro_batches, layout.vpp).orders[stage]


def of_layers(layers: Sequence[int], schedule: str, micro: int, vpp: int, **more: Any) -> Setup:
    model = catalog.load("models", "llama-7b").model_copy(update={"layers": sum(layers)})
    return resolve(
        Job(model=model, **TINY, vpp=vpp, schedule=schedule, global_batch=micro, stage_layers=tuple(layers), **more)
    )


@pytest.mark.parametrize("schedule", CHUNKED)
@settings(max_examples=12, deadline=None)
@given(data=some.data())
def test_unequal_chunks_are_held_as_often_as_in_the_order(schedule: str, data: Any) -> None:
    chunks = CHUNKED[schedule]
    layers = data.draw(some.lists(some.integers(1, 6), min_size=4 * chunks, max_size=4 * chunks))
    setup = of_layers(layers, schedule, 4 * data.draw(some.integers(2, 7)), chunks)
    for index in range(4):
        stage = weighed(setup, stage_at(setup, index))
        sizes = {chunk: float(layers[chunk]) for chunk in chunks_of(setup, index)}
        held = walk(order_of(setup, index), sizes, dict.fromkeys(sizes, 0.0))
        assert stage.in_flight == pytest.approx(held / stage.layer_count)
        if not stage.flights.split:
            continue
        waits = [*kinds_waiting(setup, stage), head_waiting(setup, stage)]
        kept = float(saved_of(setup, stage).layers)
        share = {chunk: float(waits[0]) * size / stage.layer_count for chunk, size in sizes.items()}
        share[max(sizes)] += float(waits[1])
        bytes_kept = {chunk: kept * size / stage.layer_count for chunk, size in sizes.items()}
        found = max(one.before * kept + one.waiting * float(sum(waits)) for one in stage.flights.all)
        if len(set(sizes.values())) > 1:
            assert found == pytest.approx(walk(order_of(setup, index), bytes_kept, share))


def test_the_layers_of_a_chunk_weigh_what_they_keep() -> None:
    """The first three layers of DeepSeek-V3 are dense, of 61: chunks 0 and 1 of stage 0 hold other layers, as many."""
    setup = resolve(Job(model="deepseek-v3", gpu="h200-sxm", gpus=256, pp=4, ep=64, vpp=4, seq=4096, global_batch=1024,
                        stage_layers=(4,) * 15 + (1,)))  # fmt: skip
    for index in (0, 1, 3):
        stage = weighed(setup, stage_at(setup, index))
        each = [float(one) / n for one, (_, n) in zip(kinds_saved_bytes(setup, stage), stage.layers, strict=True)]
        sizes, kept, start = chunk_sizes(setup, index), {}, 0
        for chunk, size in zip(chunks_of(setup, index), sizes, strict=True):
            kept[chunk] = sum(each[kind] for kind in stage.order[start : start + size])
            start += size
        held = walk(order_of(setup, index), kept, dict.fromkeys(kept, 0.0))
        assert stage.in_flight * sum(kept.values()) == pytest.approx(held)


def test_the_stage_keeps_the_bytes_of_those_chunks() -> None:
    """Stage 0 of GPT-3 has chunks of 2, 2, 2, 2, 1, 1, 1 and 1 layers, and holds 135 layers of 71 passes of chunks: by
    their number alone, 106.5."""
    job = {"gpu": "a100-sxm4-80gb", "gpus": 256, "seq": 2048, "tp": 4, "pp": 8, "zero": 1, "micro_batch": 2,
           "global_batch": 512}  # fmt: skip
    report = distsim.memory("gpt3-175b", **job, vpp=8)
    stage = report.stages[0]
    assert (stage.layers, stage.in_flight) == (12, 135 / 12)
    plain = distsim.memory("gpt3-175b", **job, vpp=4).stages[0]  # chunks of 3: (2 * 7 + 3 * 8 + 1) / 4 in flight
    assert plain.in_flight == 39 / 4
    per_stage = (stage.categories["activations"] - plain.categories["activations"]) / (135 / 12 - 39 / 4)
    assert per_stage == pytest.approx(stage.saved.layers + stage.saved.embedding, rel=1e-6)


@pytest.mark.parametrize("schedule", CHUNKED)
def test_equal_chunks_are_counted_by_their_number(schedule: str) -> None:
    chunks = CHUNKED[schedule]
    for recompute in ({}, {"recompute": "full", "recompute_layers": 1}):
        setup = of_layers([2] * 4 * chunks, schedule, 16, chunks, **recompute)
        for index in range(4):
            assert weighed(setup, stage_at(setup, index)) is stage_at(setup, index)


@pytest.mark.parametrize("schedule", [*CHUNKED, "dualpipe", "chimera"])
@pytest.mark.parametrize("stages", [2, 4, 6])
def test_few_micro_batches_tell_what_many_hold(schedule: str, stages: int) -> None:
    """Whatever chunks weigh, the moments found of a few are the peak of the whole order."""
    chance = random.Random(stages)
    for micro in (1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 13, 18, 24, 26, 48, 60):
        chunks = CHUNKED.get(schedule, 1)
        try:
            built = build(schedule, stages, micro, chunks)
        except DistsimError:
            continue
        for stage, order in enumerate(built.orders):
            own = [chunk for chunk, place in enumerate(built.placement) if place == stage]
            told, every = chunk_passes(schedule, stages, micro, chunks, stage), passes_of(order, own)
            for _ in range(4):
                kept, waits = ([chance.random() for _ in own] for _ in range(2))
                for known, moments in zip(told, every, strict=True):
                    if known:
                        assert peak(known, kept, waits) == pytest.approx(peak(moments, kept, waits)), (micro, stage)


def peak(moments: Iterable[Held], kept: Sequence[float], waits: Sequence[float]) -> float:
    return max(
        sum(n * size for n, size in zip([*before, *waiting], [*kept, *waits], strict=True))
        for before, waiting in moments
    )


@pytest.mark.parametrize(("micro", "group"), [(9, 5), (13, 7), (14, 5), (26, 7), (38, 8), (40, 9)])
def test_groups_of_which_the_last_is_smaller(micro: int, group: int) -> None:
    chance = random.Random(micro)
    built = build("interleaved-1f1b-megatron", 4, micro, 3, group=group)
    for stage, order in enumerate(built.orders):
        told = interleaved_passes(4, micro, 3, group, stage)
        for _ in range(5):
            kept = [chance.random() for _ in range(3)]
            every, _ = passes_of(order, [stage, stage + 4, stage + 8])
            assert peak(told.all, kept, [0.0] * 3) == pytest.approx(peak(every, kept, [0.0] * 3))


@settings(max_examples=50)
@given(some.lists(some.tuples(*[some.integers(0, 6)] * 3), min_size=1), some.tuples(*[some.integers(0, 9)] * 3))
def test_highest_moments_have_the_largest_sum(vectors: list[Vector], weights: Vector) -> None:
    def total(one: Vector) -> float:
        return sum(a * b for a, b in zip(one, weights, strict=True))

    assert max(map(total, highest(vectors))) == max(map(total, vectors))


@pytest.mark.parametrize("schedule", ["dualpipe", "chimera"])
@pytest.mark.parametrize("model", ["deepseek-v2-lite", "gpt2-xl", "qwen2.5-0.5b"])
def test_ranks_of_two_copies_mirror_each_other(schedule: str, model: str) -> None:
    job = {"gpu": "h200-sxm", "gpus": 8, "pp": 4, "seq": 2048, "zero": 1, "global_batch": 64}
    report = distsim.memory(model, **job, schedule=schedule)
    rows = [stage.to_dict() | {"stage": 0} for stage in report.stages]
    assert rows == rows[::-1]
    assert sum(row["layers"] for row in rows) == 2 * sum(report.setup.chunk_layers)
    for end in (0, -1):
        assert "loss" in {moment["moment"] for moment in rows[end]["moments"]}


def test_a_rank_of_two_copies_holds_what_the_order_says() -> None:
    """DeepSeek-V3 of eight stages: the first rank has stage 0 of one copy and stage 7 of the other."""
    setup = resolve(Job(model="deepseek-v3", gpu="h200-sxm", gpus=256, pp=8, ep=32, zero=1, seq=4096,
                        global_batch=1024, schedule="dualpipe"))  # fmt: skip
    parts = [stage_at(setup, index) for index in (0, 7)]
    kept = [float(saved_of(setup, part).layers) for part in parts]
    waits = [float(sum(kinds_waiting(setup, part)) + head_waiting(setup, part)) for part in parts]
    held = walk(order_of(setup, 0), dict(zip((0, 15), kept, strict=True)), dict(zip((0, 15), waits, strict=True)))
    stage = weighed(setup, parts[0])
    told = max(one.before * sum(kept) + one.waiting * sum(waits) for one in stage.flights.all)
    assert told == pytest.approx(held)
    ends = distsim.memory(setup.job)
    assert ends.stages[0].categories == ends.stages[7].categories


@pytest.mark.parametrize(
    ("model", "layers"), [("llama-7b", [5, 4, 4, 4, 4, 4, 4, 3]), ("llama-3.2-1b", [3, 2, 2, 2, 2, 2, 2, 1])]
)
def test_half_of_dualpipe_folds_into_a_v(model: str, layers: list[int]) -> None:
    """A DualPipeV of four stages is one half of a DualPipe of eight, whose ends hold a tied matrix once, too."""
    common = {"gpu": "h200-sxm", "seq": 2048, "global_batch": 64, "stage_layers": layers}
    two = distsim.memory(model, **common, gpus=8, pp=8, schedule="dualpipe")
    one = distsim.memory(model, **common, gpus=4, pp=4, schedule="dualpipe-v")
    for here, there in zip(two.stages, one.stages, strict=False):
        assert (here.layers, here.in_flight) == (there.layers, there.in_flight)
        for states in ("parameters", "gradients", "optimizer"):
            assert here.categories[states] == there.categories[states]
        assert here.categories["activations"] == pytest.approx(there.categories["activations"], rel=1e-3)


@pytest.mark.parametrize(("model", "gpus", "bounds"), [
    ("deepseek-v2-lite", 32, {"pp": "4,8", "vpp": "2..3"}),
    ("llama-7b", 32, {"pp": "4,8", "vpp": "1..3", "recompute": "none,full"}),
    ("llama-7b", 16, {"pp": "4", "vpp": "2", "schedule": "zb-v,looped-bfs"}),
    ("qwen2.5-0.5b", 32, {"pp": "4,8", "schedule": "zb-v"}),
    ("deepseek-v2-lite", 16, {"pp": "4", "dp": "4", "micro_batch": "1", "schedule": "dualpipe"}),
    ("llama-7b", 16, {"pp": "4", "dp": "4", "micro_batch": "1,2", "schedule": "chimera"}),
    ("deepseek-v2-lite", 16, {"pp": "4", "dp": "4", "vpp": "3", "micro_batch": "1", "schedule": "interleaved-zb"}),
])  # fmt: skip
def test_search_counts_unequal_chunks_as_memory_does(model: str, gpus: int, bounds: dict[str, str | None]) -> None:
    base, chance, checked = base_setup(Job(model=model, gpu="h100-sxm", global_batch=64), gpus), random.Random(3), 0
    names = (bounds.get("schedule") or "interleaved-1f1b,1f1b,looped-bfs").split(",")
    found = list(groups(base, gpus, 64, parse_bounds(bounds, []), tuple(names)))
    for group in chance.sample(found, min(6, len(found))):
        every = list(blocks(group, Prices()))
        for block in chance.sample(every, min(4, len(every))):
            checked += _same(base, block, chance)
    assert checked >= min(6, len(found))
