"""Searches over schedules, precision, offloading and batches: the numbers of step and memory, and a fair ranking."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy
import pytest

from distsim import catalog
from distsim.engine.corrections.correction import correction_of
from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.bounds import CLOSED, SIMULATED, USUAL, Bounds, parse_bounds
from distsim.engine.layouts.choice import choice
from distsim.engine.layouts.fold import Block, fold, setup_at
from distsim.engine.layouts.places import places
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.report import Request, SearchReport
from distsim.engine.layouts.schedules import simulated
from distsim.engine.layouts.search import search
from distsim.engine.layouts.space import AXES, Group, groups
from distsim.engine.layouts.variants import FIXED, parse_batches, parse_offloads, parse_precisions, variants
from distsim.engine.memory import memory_of
from distsim.engine.step import seconds_of
from distsim.engine.steps.breakdown import timing_of
from distsim.engine.steps.composed import composed
from distsim.engine.steps.simulated import ALWAYS_EXACT, LEARNED, simulated_seconds
from distsim.engine.steps.work import work_of
from distsim.errors import DistsimError
from distsim.specs.job import Job
from distsim.specs.support import Supports


def found_in(job: Job, gpus: int, bounds: Bounds, **lists: tuple[str, ...]) -> list[Group]:
    """Groups of a search with one batch."""
    framework = catalog.load("frameworks", job.framework).model_copy(update={"supports": Supports()})  # anything
    opened = variants(
        job, gpus, lists.get("precisions", ()), lists.get("offloads", ()), {"framework": framework}, bounds
    )
    assert job.global_batch is not None
    return [group for base in opened for group in groups(base, gpus, job.global_batch, bounds)]


def same(block: Block, chance: random.Random) -> None:
    """One layout of a block, by itself."""
    valid = numpy.argwhere(block.valid)
    inside = tuple(int(i) for i in valid[chance.randrange(len(valid))])
    base = block.group.setup
    layout = block.group.layout_at(tuple(a + b for a, b in zip(block.start, inside, strict=True)))
    update: dict[str, Any] = {**dict.fromkeys(FIXED), **setup_at(base, layout)}
    job = base.job.model_copy(update=update)
    setup = resolve(job, {"accelerator": base.accelerator, "cluster": base.cluster, "framework": base.framework})
    closed = composed(work_of(setup), timing_of(setup), correction_of(setup))
    assert float(block.seconds[inside]) == pytest.approx(closed.seconds, rel=1e-9), layout
    if setup.layout.schedule in (*LEARNED, *ALWAYS_EXACT):
        assert seconds_of(setup) == closed.seconds
    assert float(block.peak[inside]) == pytest.approx(memory_of(setup).worst.peak, rel=1e-9), layout


@pytest.mark.parametrize(
    ("model", "schedules"),
    [("llama-7b", ",".join(CLOSED)), ("gpt2-xl", "zb-v,looped-bfs"), ("mixtral-8x7b", "zb-v,zb-h2")],
)
def test_every_closed_schedule_has_the_numbers_of_step(model: str, schedules: str) -> None:
    bounds = parse_bounds({"schedule": schedules, "pp": "2..8", "cp": "1"}, [])
    chance, prices, seen = random.Random(5), Prices(), set()
    for group in found_in(Job(model=model, gpu="h100-sxm", global_batch=48, framework="deepspeed"), 16, bounds):
        seen |= set(numpy.unique(group.setup.layout.schedule).tolist())
        folded = fold(group, prices)
        every = list(places(group))
        for place in chance.sample(every, min(3, len(every))):
            for _ in range(3):
                same(folded.block(place), chance)
    assert seen == set(schedules.split(","))


@pytest.mark.parametrize(("words", "lists"), [("none,selective", {None}), ("modules", {"moe_act,layernorm"}),
                                              ("full,modules", {None, "moe_act,layernorm"})])  # fmt: skip
def test_modules_have_the_numbers_of_step(words: str, lists: set[str | None]) -> None:
    """Layouts whose cheap modules are computed again stand beside the others, and are told apart by them."""
    bounds = parse_bounds({"recompute": words, "pp": "1,2", "tp": "1,2", "cp": "1"}, [])
    job = Job(model="mixtral-8x7b", gpu="h100-sxm", global_batch=32, framework="megatron-core")
    chance, prices, seen = random.Random(7), Prices(), set()
    setup = resolve(job)
    real = [group for base in variants(job, 16, (), (), {"framework": setup.framework}, bounds)
            for group in groups(base, 16, 32, bounds)]  # fmt: skip
    for group in real:
        seen.add(group.setup.job.recompute_modules)
        assert (group.setup.job.recompute_modules is None) == (group.setup.kernels.selective == ("core_attention",))
        folded = fold(group, prices)
        every = list(places(group))
        for place in chance.sample(every, min(2, len(every))):
            same(folded.block(place), chance)
    assert seen == lists


@pytest.mark.parametrize("mode", ["ring", "all_gather", "all_to_all"])
@pytest.mark.parametrize(("model", "framework"), [
    ("bitnet-b1.58-2b-4t", "deepspeed"), ("qwen3-next-80b-a3b", "deepspeed"), ("deepseek-v3.2", "torchtitan"),
    ("nemotron-h-8b", "megatron-core"),
])  # fmt: skip
def test_context_parallelism_has_the_numbers_of_step(model: str, framework: str, mode: str) -> None:
    """Layouts with and without it stand side by side, of which some copy attention's output for what reads it: a
    projection, a gate, a norm before the projection."""
    bounds = parse_bounds({"pp": "1", "tp": "1,2", "ep": "1", "cp": "1..4", "recompute": "none"}, [])
    job = Job(model=model, gpu="h100-sxm", global_batch=16, framework=framework, seq=4096, cp_mode=mode)
    chance, prices = random.Random(3), Prices()
    for group in found_in(job, 8, bounds):
        folded = fold(group, prices)
        for place in places(group):
            same(folded.block(place), chance)
            same(folded.block(place), chance)


@pytest.mark.parametrize(("framework", "offloads"), [
    ("megatron-core", ("none", "optimizer", "activations", "optimizer,activations")),
    ("deepspeed", ("none", "parameters", "optimizer,parameters")),
])  # fmt: skip
def test_precision_and_offloading_have_the_numbers_of_step(framework: str, offloads: tuple[str, ...]) -> None:
    job = Job(model="llama-7b", gpu="h100-sxm", global_batch=32, framework=framework)
    chance, prices, seen = random.Random(11), Prices(), set()
    for group in found_in(job, 8, Bounds(), precisions=("bf16", "fp8", "fp32"), offloads=offloads):
        seen.add((group.setup.precision.name, group.setup.offload))
        folded = fold(group, prices)
        same(folded.block(chance.choice(list(places(group)))), chance)
    assert len(seen) == 3 * len(offloads)


def test_parameters_leave_the_gpu_under_zero_3_only() -> None:
    job = Job(model="llama-7b", gpu="h100-sxm", global_batch=8, offload="parameters")
    for gpus in (1, 8):
        for group in found_in(job, gpus, Bounds()):
            assert set(numpy.unique(group.setup.layout.zero).tolist()) == {3}
            assert group.layouts


def run(gpus: int = 8, bounds: dict[str, str] | None = None, **more: Any) -> SearchReport:
    """A search without the costliest dimensions."""
    stated: dict[str, str | None] = {"recompute": "none,selective", "cp": "1", **(bounds or {})}
    job = Job(model="llama-7b", gpu="h100-sxm", global_batch=more.pop("batch", 64))
    return search(Request(job, (gpus,), parse_bounds(stated, []), **more))


def test_batches_are_ranked_by_tokens_per_second() -> None:
    apart = [run(batch=batch) for batch in (32, 64, 96)]
    together = run(batches=(32, 64, 96))
    assert together.evaluated == sum(report.evaluated for report in apart)
    rates = [one.report.tokens_per_second for one in together.best]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(max(report.best[0].report.tokens_per_second for report in apart))
    front = [(one.report.memory.peak, one.report.tokens_per_second) for one in together.front]
    assert front == sorted(front)  # whatever the batch: more memory only for more tokens per second
    assert together.global_batch == together.best[0].report.setup.job.global_batch
    for one in together.almost:
        assert one.report.tokens_per_second > rates[0]


def test_a_deadline_is_one_of_steps_whatever_the_batch() -> None:
    quick = run(batch=32).best[0].report.seconds
    report = run(batches=(32, 1024), within=1.01 * quick)
    assert report.best and {one.report.setup.job.global_batch for one in report.best} == {32}
    assert report.fitting > report.feasible


def test_several_recipes_are_ranked_together_and_told_apart() -> None:
    report = run(precisions=("bf16", "fp8"), offloads=("none", "optimizer"))
    named = {(one.report.setup.precision.name, one.report.setup.offload) for one in (*report.best, *report.front)}
    assert {name for name, _ in named} == {"bf16", "fp8"} and {kind for _, kind in named} == {(), ("optimizer",)}
    for one in report.best:
        assert one.report.seconds == pytest.approx(one.found.seconds, rel=1e-9)
    assert run().evaluated * 4 == report.evaluated  # searches that name neither stay as large as they were


def test_schedules_without_closed_form_are_simulated_for_the_best() -> None:
    report = run(bounds={"schedule": "all", "pp": "4", "cp": "1", "tp": "2", "vpp": "1,2"})
    names = {one.layout["schedule"] for one in report.kept.every.found}
    assert names & set(SIMULATED) and not names - set(CLOSED) - set(SIMULATED)
    assert "simulated only at the degrees of the best few" in " ".join(report.notes)
    for one in report.kept.every.found:
        if one.layout["schedule"] in SIMULATED:
            again = choice(one, {}).report
            closed = composed(again.work, again.timing, again.correction)
            assert closed.seconds == pytest.approx(one.seconds, rel=1e-9)
            assert again.seconds == pytest.approx(simulated_seconds(closed), rel=1e-9)
            assert again.memory.worst.peak == pytest.approx(one.peak, rel=1e-9)


UNLIKE: dict[str, Any] = {"model": "gemma-2-9b", "gpu": "h100-sxm", "global_batch": 16, "seq": 4096}


def test_schedules_that_idle_longer_in_simulation_rank_by_it() -> None:
    """A large output layer makes hanayo and 1f1b-v a fifth and more longer than their closed forms, by which they had
    taken the places of 1f1b and stood on the front."""
    bounds = parse_bounds({"tp": "1", "cp": "1", "pp": "8", "schedule": "all"}, [])
    report = search(Request(Job(**UNLIKE), (8,), bounds))
    steps = [(one.report.memory.peak, one.report.seconds) for one in report.best]
    assert [seconds for _, seconds in steps] == sorted(seconds for _, seconds in steps)
    plain = min(one.report.seconds for one in report.best if one.report.setup.layout.schedule == "1f1b")
    assert plain < steps[-1][1]
    assert any(one.found.seconds < 0.9 * one.report.seconds for one in report.best)
    front = [(one.report.memory.peak, one.report.seconds) for one in report.front]
    assert front == sorted(front) and [s for _, s in front] == sorted((s for _, s in front), reverse=True)
    assert not [one for one in front for other in steps if other[0] <= one[0] and other[1] < one[1]]
    for one in report.almost:
        assert one.report.seconds < steps[0][1]


def test_a_step_that_is_late_in_simulation_is_not_in_time() -> None:
    bounds = parse_bounds({"tp": "1", "cp": "1", "pp": "8", "zero": "0", "schedule": "hanayo"}, [])
    least = search(Request(Job(**UNLIKE), (8,), bounds)).best[0]
    assert least.found.seconds < 0.9 * least.report.seconds
    missed = search(Request(Job(**UNLIKE), (8,), bounds, within=0.95 * least.report.seconds))
    assert not missed.best and not missed.feasible and missed.fitting
    assert missed.nearest[0].report.seconds == least.report.seconds
    assert search(Request(Job(**UNLIKE), (8,), bounds, within=1.01 * least.report.seconds)).best


def test_what_takes_less_than_its_closed_form_is_not_passed_over() -> None:
    """By the closed form micro-batches of 2 are quicker, by their own steps those of 4, though one is asked for."""
    asked = {"pp": "4", "tp": "4", "cp": "1", "zero": "3", "recompute": "none", "micro_batch": "1..4"}
    job = Job(model="qwen2.5-14b", gpu="v100-sxm2-32gb", global_batch=16, seq=512)
    every = search(Request(job, (16,), parse_bounds({**asked, "schedule": "zb-h1"}, [])))
    first = search(Request(job, (16,), parse_bounds({**asked, "schedule": "zb-h1"}, []), top=1)).best[0]
    assert first.found.seconds > min(one.found.seconds for one in every.best)
    assert first.seconds == min(one.seconds for one in every.best) < 0.99 * every.kept.best.found[0].seconds
    brief = search(Request(job, (16,), parse_bounds({**asked, "schedule": "zb-h1"}, []), top=1, brief=True))
    assert brief.best[0].seconds == first.seconds


def test_what_is_late_by_its_closed_form_alone_is_in_time() -> None:
    """The closed form of ZB-H1 is 3% longer than any of these steps, and 1F1B, under which the degrees of DualPipeV are
    found, is late."""
    asked = {"pp": "4", "tp": "4", "cp": "1", "zero": "3", "recompute": "none", "schedule": "zb-h1"}
    job = Job(model="qwen2.5-14b", gpu="v100-sxm2-32gb", global_batch=16, seq=512)
    for gpus, objective in (((16,), "throughput"), ((16, 32), "fewest-gpus")):
        request = Request(job, gpus, parse_bounds(asked, []), objective, top=1)
        quickest = search(replace(request, gpus=(16,), objective="throughput")).best[0]
        report = search(replace(request, within=1.0001 * quickest.seconds))
        assert report.best[0].seconds == quickest.seconds < 0.97 * quickest.found.seconds and report.feasible == 1
        assert not search(replace(request, gpus=(16,), within=0.9999 * quickest.seconds)).best
    asked |= {"zero": "1", "tp": "2", "micro_batch": "1", "schedule": "1f1b,dualpipe-v"}
    request = Request(Job(**UNLIKE), (8,), parse_bounds(asked, []), top=1)
    first = search(request).best[0]
    assert first.report.setup.layout.schedule == "dualpipe-v"
    assert search(replace(request, within=1.0001 * first.seconds)).best[0].seconds == first.seconds


def test_simulated_schedules_are_tried_with_as_many_chunks_as_layers_allow() -> None:
    """1F1B, under which the degrees are found, has one chunk; Hanayo's best has more than two, which are no better than
    it."""
    asked = {"pp": "2", "tp": "4", "cp": "1", "zero": "0", "recompute": "none", "micro_batch": "2"}
    job = Job(model="llama-3.1-70b", gpu="b300-sxm", global_batch=16, seq=4096)
    some, every = (
        search(Request(job, (8,), parse_bounds({**asked, **chunks, "schedule": "1f1b,hanayo"}, []), top=1)).best[0]
        for chunks in ({"vpp": "1,2"}, {})
    )
    layout = every.report.setup.layout
    assert some.report.setup.layout.schedule == "1f1b" and layout.schedule == "hanayo" and layout.vpp > 2
    assert every.seconds < 0.95 * some.seconds


def test_only_simulated_schedules() -> None:
    report = run(bounds={"schedule": "v-half,hanayo", "pp": "4", "vpp": "1,2"})
    assert report.best and {one.found.layout["schedule"] for one in report.best} <= {"v-half", "hanayo"}
    assert 0 < report.evaluated < 2000


def test_schedules_that_hold_two_copies_get_what_recomputation_they_need() -> None:
    """Under 1F1B nine layers of recomputation fit; Chimera's second copy needs the memory of more."""
    job = Job(model="llama-3.1-70b", gpu="h100-sxm", global_batch=512, seq=131_072)
    found = {}
    for schedule in ("1f1b", "chimera"):
        bounds = parse_bounds({"tp": "8", "pp": "4", "cp": "4", "micro_batch": "1", "schedule": schedule}, [])
        report = search(Request(job, (128,), bounds, top=1))
        assert report.fitting and report.best[0].report.memory.fits
        found[schedule] = report.best[0].found.layout
    assert found["chimera"]["recompute_layers"] > found["1f1b"]["recompute_layers"] > 0


def test_what_takes_less_memory_follows_where_nothing_fits() -> None:
    report = run(bounds={"schedule": "1f1b"})
    kept, bounds = report.kept, parse_bounds({"schedule": "dualpipe,v-half"}, [])
    counts = itertools.count()
    some = [degrees(group) for group in simulated(kept, bounds, lambda: next(counts))]
    every = [degrees(group) for group in simulated(kept, bounds, lambda: 0)]
    assert set(some) < set(every)
    assert {one[0] for one in every} == {"dualpipe", "v-half"} and all(one[1] > 1 for one in every)


def degrees(group: Group) -> tuple[Any, ...]:
    y = group.layout_at((0,) * AXES)
    return tuple(y[name] for name in ("schedule", "pp", "tp", "cp", "dp", "micro_batch"))


def test_the_event_simulation_of_the_best() -> None:
    report = run(bounds={"pp": "4"})
    for one in report.best:
        assert one.simulated_seconds == pytest.approx(one.report.seconds, rel=0.05)
        assert one.to_dict()["simulated_seconds"] == one.simulated_seconds
    assert run(bounds={"pp": "1"}).best[0].simulated_seconds is None


def test_a_block_is_the_same_however_it_is_cut() -> None:
    """Parts that do not differ along an axis are computed once: whole groups, and layout by layout."""
    bounds = parse_bounds({"pp": "2", "recompute": "none,full", "recompute_layers": "1..3"}, ["recompute=none"])
    for group in found_in(Job(model="llama-7b", gpu="h100-sxm", framework="deepspeed", global_batch=16), 8, bounds):
        folded = fold(group, Prices())
        whole = folded.block(tuple(slice(0, size) for size in group.shape))
        seen = numpy.zeros(group.shape, dtype=int)
        for place in places(group):
            block = folded.block(place)
            seen[place] += block.valid
            for name in ("seconds", "peak"):
                numpy.testing.assert_allclose(getattr(block, name), getattr(whole, name)[place], rtol=1e-12)
        assert (seen == numpy.broadcast_to(group.valid, group.shape)).all()


def test_searches_take_the_schedules_that_steps_do() -> None:
    """Megatron's groups are found by interleaved 1F1B itself, so that its name is one more for that."""
    asked = parse_bounds({"schedule": "1f1b,interleaved-1f1b-megatron,interleaved-1f1b"}, [])
    assert asked.words("schedule") == ["1f1b", "interleaved-1f1b"]


def test_lists() -> None:
    job = Job(model="llama-7b", gpu="h100-sxm")
    assert parse_batches("512..2048", job) == (512, 1024, 2048)
    assert parse_batches("512..1500,48", job) == (48, 512, 1024, 1500)
    assert parse_offloads("none,activations+optimizer", job) == ("none", "optimizer,activations")
    assert parse_offloads("all", job)[0] == "none" and len(set(parse_offloads("all", job))) >= 4
    assert parse_precisions("bf16,bfloat16,fp8", job) == ("bf16", "fp8")
    assert "mxfp8" not in parse_precisions("all", job) and "fp8" in parse_precisions("all", job)
    assert "mxfp8" in parse_precisions("all", Job(model="llama-7b", gpu="b200"))
    assert "fp8" not in parse_precisions("all", Job(model="llama-7b", gpu="a100-sxm4-80gb"))
    assert not [name for name in parse_precisions("all", job) if name.startswith(("fsdp", "jax", "torchao"))]
    assert {"tf32", "fp32", "bf16-fp32-grads", "fp8-parameters"} <= set(parse_precisions("all", job))
    torch = parse_precisions("all", Job(model="llama-7b", gpu="h100-sxm", framework="torchtitan"))
    assert "fsdp-bf16" in torch and "jax-bf16" not in torch and "bf16-fp32-grads" not in torch
    assert parse_bounds({}, []).words("schedule") == list(USUAL)


@pytest.mark.parametrize(("parse", "text"), [
    (parse_batches, "64.."), (parse_batches, "x"), (parse_offloads, "none+optimizer"), (parse_offloads, "weights"),
    (parse_offloads, ","), (parse_precisions, "bf61"),
])  # fmt: skip
def test_bad_lists_are_told(parse: Any, text: str) -> None:
    with pytest.raises(DistsimError):
        parse(text, Job(model="llama-7b", gpu="h100-sxm"))
