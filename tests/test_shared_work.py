"""Work that a search shares: computed once for all layouts that agree on what it depends on, and the same as alone."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from distsim import catalog
from distsim.arrays import Number, by_column, plus, product
from distsim.engine.exchanges import parameter_buckets
from distsim.engine.exchanges.all_flows import network_of, stage_flows
from distsim.engine.exchanges.flows import Flow
from distsim.engine.exchanges.parameter_buckets import buckets_filled
from distsim.engine.footprint.backward import Gradients, backward_peak, kept_along
from distsim.engine.jobs import stages
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import Stage, build_stages, stage_at
from distsim.engine.layouts import alike as likes
from distsim.engine.layouts import fold as folds
from distsim.engine.layouts import prices, shown
from distsim.engine.layouts.best import Kept
from distsim.engine.layouts.bounds import Bounds, parse_bounds
from distsim.engine.layouts.fold import Inside, fold
from distsim.engine.layouts.prices import Prices
from distsim.engine.layouts.ranking import Found, Objective
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.layouts.space import AGAIN, AXES, MESH, MICRO, ZERO, Group, groups
from distsim.engine.layouts.variants import base_setup
from distsim.engine.step import step
from distsim.engine.steps import content
from distsim.engine.steps.timeline import timeline_of
from distsim.formulas.step import paced_seconds
from distsim.layers.ledger import distinct_saved
from distsim.specs.job import Job


def groups_of(model: str, gpus: int, batch: int, **bounds: str) -> list[Group]:
    job = Job(model=model, gpu="h100-sxm", global_batch=batch)
    return list(groups(base_setup(job, gpus), gpus, batch, parse_bounds(dict(bounds), [])))


def test_every_choice_of_a_group_is_some_layouts_own() -> None:
    """Micro-batches that divide the batch on no mesh, and meshes whose experts Megatron does not run, are not
    folded."""
    found = groups_of("deepseek-v3", 512, 512, pp="1")
    assert len({group.shape[MICRO] for group in found}) > 1
    for group in found:
        whole = numpy.broadcast_to(group.valid, group.shape)
        for axis in range(AXES):
            assert whole.any(axis=tuple(other for other in range(AXES) if other != axis)).all()


@pytest.mark.parametrize("model", ["llama-7b", "deepseek-v3"])
def test_no_part_is_folded_over_sharding_and_recomputation_at_once(model: str) -> None:
    """Their product is most of a group: hooks that Megatron does not have, and the optimizer's moment of the step, once
    made arrays of it."""
    for group in groups_of(model, 64, 256, pp="2", tp="1..4"):
        folded = fold(group, prices.Prices())
        for section, memory in zip(folded.sections, folded.footprint.parts, strict=True):
            for parts in (*section.stages, *memory.stages, section.numbers):
                shapes = {name: numpy.shape(value) for name, value in parts.items() if numpy.shape(value)}
                assert [name for name, one in shapes.items() if one[ZERO] > 1 and one[AGAIN] > 1] == []


def test_every_mesh_has_all_its_micro_batches_beside_meshes_that_have_others() -> None:
    """Three data parallel ranks take four sequences at once of a batch of twelve, which two do not."""
    found = set()
    for group in groups_of("gpt2", 6, 12, pp="1", dp="2..3"):
        whole = numpy.broadcast_to(group.valid, group.shape)
        y = group.setup.layout
        degrees, sizes = (numpy.broadcast_to(one, group.shape)[whole] for one in (y.dp, y.micro_batch))
        found |= set(zip(degrees.tolist(), sizes.tolist(), strict=True))
    assert found == {(2, 1), (2, 2), (2, 3), (2, 6), (3, 1), (3, 2), (3, 4)}


@pytest.mark.parametrize("framework", ["megatron-core", "deepspeed", "torchtitan"])
@pytest.mark.parametrize("model", ["llama-7b", "mixtral-8x7b", "deepseek-v3"])
def test_what_is_kept_adds_up_from_one_operation_to_the_next(model: str, framework: str) -> None:
    setup = resolve(Job(model=model, gpu="h100-sxm", gpus=8, framework=framework))
    recipes = ((), ("core_attention",), ("norm", "activation"), ("mla_up_proj", "moe_act", "layernorm", "mlp"))
    for block, _ in build_stages(setup)[0].layers:
        rows = block.operations
        classes = {row.recompute_class for row in rows if row.recompute_class}
        for kinds in (*recipes, tuple(sorted(classes))):
            kernels = setup.kernels.model_copy(update={"selective": kinds})
            for casts, own in itertools.product((False, True), (None, kernels)):
                wanted = [
                    sum(distinct_saved(rows[:end], int(own is not None), own, weight_copies=casts).values())
                    for end in range(1, len(rows) + 1)
                ]
                assert list(kept_along(rows, own, weight_copies=casts)) == wanted
            both = numpy.array([0, 1, 0])
            alone = [backward_peak(rows, Gradients(0, 2), int(one), kernels) for one in both]
            together = backward_peak(rows, Gradients(0, 2), both, kernels)
            for some, each in zip(together, zip(*alone, strict=True), strict=True):
                assert numpy.array_equal(numpy.broadcast_to(some, 3), each)


def test_buckets_of_parameters_are_counted_for_each_layout() -> None:
    """Eight experts of eight elements fill three buckets of twenty, with three, three and two of them."""
    assert buckets_filled([(64, 8)], 20) == 3 and buckets_filled([(64, 0)], 20) == 1
    tensors, limits = [(10, 0), (64, 8), (5, 0), (30, 3), (2, 0)], numpy.array([[7, 12, 20], [25, 90, 1000]])
    alone = [[buckets_filled(tensors, int(one)) for one in row] for row in limits]
    assert buckets_filled(tensors, limits).tolist() == alone
    wide = [(numpy.array([elements, 2 * elements]), parts) for elements, parts in tensors]
    assert buckets_filled(wide, 20).tolist() == [
        buckets_filled([(times * elements, parts) for elements, parts in tensors], 20) for times in (1, 2)
    ]


def test_columns_that_are_alike_are_computed_once() -> None:
    asked: list[int] = []

    def area(width: Any, height: Any, each: float) -> Any:
        asked.append(width.shape[-1])
        return width * height**0.5 * each

    places = numpy.random.default_rng(3).integers(0, 7, 200)
    width, height = numpy.arange(21.0).reshape(3, 7)[:, places], numpy.arange(5.0, 12.0)[None, places]
    assert numpy.array_equal(by_column(area, width, height, 2.5), width * height**0.5 * 2.5)
    assert asked == [7]


def test_columns_that_only_seem_alike_are_told_apart() -> None:
    """All of these have the same mark: an infinite one."""
    high, low = numpy.full((1, 64), numpy.inf), numpy.arange(64.0)[None, :]
    assert numpy.array_equal(by_column(lambda one, other: other + 0 * (one > 0), high, low), low)


def test_prices_look_at_few_of_the_meshes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each exchange is looked up for the meshes on which its price may differ, and the small ones together."""
    group = max(groups_of("mixtral-8x7b", 256, 256, pp="1"), key=lambda one: one.shape[MESH])
    alone = prices._of_row
    sizes: list[int] = []

    def counted(flow: Flow, row: Any, network: Any) -> Any:
        sizes.append(prices._size(row))
        return alone(flow, row, network)

    monkeypatch.setattr(prices, "_of_row", counted)
    shared = fold(group, prices.Prices()).sections[-1].stages
    looked_up, calls = sum(sizes), len(sizes)
    sizes.clear()
    monkeypatch.setattr(prices, "distinct_columns", lambda values: None)
    monkeypatch.setattr(prices, "MOST_NUMBERS", 0)
    whole = fold(group, prices.Prices()).sections[-1].stages
    assert looked_up < sum(sizes) / 5 and calls < len(sizes) / 2
    for one, other in zip(shared, whole, strict=True):
        assert all(numpy.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("model", "chip", "bounds"),
    [
        ("llama-7b", {"gpu": "h100-sxm"}, {"cp": "1..4", "pp": "1,2,4,12"}),
        ("deepseek-v3", {"gpu": "gb200"}, {"tp": "1..4", "ep": "8..64", "zero": "1,3", "pp": "1,4,12"}),
        ("llama-7b", {"gpu": "tpu-v5e", "framework": "maxtext"}, {}),
        ("gpt2", {"gpu": "h100-nvl"}, {"dp": "2..3"}),
        ("llama-7b", {"gpu": "mi300x"}, {"pp": "2..6"}),
    ],
)
def test_exchanges_cost_the_same_together(model: str, chip: dict[str, str], bounds: dict[str, str]) -> None:
    """Flows of one pattern are priced as one array."""
    batch = 96
    base = base_setup(Job(model=model, global_batch=batch, **chip), 96)
    for group in groups(base, 96, batch, parse_bounds(bounds, [])):
        setup = group.setup
        network, exchange = network_of(setup), exchange_of(setup)
        flows = [flow for stage in build_stages(setup) for flow in stage_flows(setup, exchange, network, stage)]
        together, alone = prices.Prices(), prices.Prices()
        together.together(flows, network)
        for flow in flows:
            one, other = (numpy.broadcast_to(known(flow, network).seconds, group.shape) for known in (together, alone))
            assert numpy.array_equal(one, other)


@pytest.mark.parametrize(("model", "ep"), [("llama-7b", "1"), ("mixtral-8x7b", "2..8")])
def test_networks_share_what_they_do_not_decide(model: str, ep: str) -> None:
    """The same groups on another network: exchanges, computation and memory are taken over, and priced again."""
    inside: list[Inside] = []
    for name in ("dgx-h100", "p5.48xlarge", "a3-highgpu-8g"):
        base = base_setup(Job(model=model, cluster=name, global_batch=64), 64)
        for number, group in enumerate(groups(base, 64, 64, parse_bounds({"pp": "1..4", "ep": ep}, []))):
            if number == len(inside):
                inside.append(Inside())
            one, other = fold(group, prices.Prices(), inside[number]), fold(group, prices.Prices())
            for known, alone in zip(one.sections, other.sections, strict=True):
                pairs = [(known.numbers, alone.numbers), *zip(known.stages, alone.stages, strict=True)]
                assert all(numpy.array_equal(a[key], b[key]) for a, b in pairs for key in b)
            for mine, own in zip(one.footprint.parts, other.footprint.parts, strict=True):
                both = zip(mine.stages, own.stages, strict=True)
                assert all(numpy.array_equal(a[key], b[key]) for a, b in both for key in b)
    assert len(inside) > 2 and all(len(one.work.flows) == 1 for one in inside)


@pytest.mark.parametrize(("model", "gpus"), [("llama-7b", 64), ("mixtral-8x7b", 16)])
def test_a_brief_search_has_the_same_best(model: str, gpus: int) -> None:
    job = Job(model=model, gpu="h100-sxm", global_batch=256)
    bounds = parse_bounds({"tp": "1..8", "pp": "1..4"}, [])
    whole, brief = (search(Request(job, (gpus,), bounds, top=4, brief=brief)) for brief in (False, True))
    assert [one.options for one in brief.best] == [one.options for one in whole.best]
    assert [(one.key, one.place) for one in brief.kept.front.found] == [
        (one.key, one.place) for one in whole.kept.front.found
    ]
    assert (brief.evaluated, brief.feasible) == (whole.evaluated, whole.feasible)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pipeline stages of each group that a search times, as it goes."""
    found: list[int] = []

    def counted(group: Group, *known: Any) -> Any:
        found.append(group.setup.layout.pp)
        return fold(group, *known)

    monkeypatch.setattr(folds, "fold", counted)
    return found


def test_no_group_is_timed_of_which_nothing_fits(timed: list[int]) -> None:
    """But for the first, in a search that asks for the best alone; it counts what one that times all counts."""
    job, bounds = Job(model="mixtral-8x7b", gpu="h100-sxm", global_batch=512), parse_bounds({"tp": "1..4"}, [])
    whole, every = search(Request(job, (16,), bounds)), timed.copy()
    timed.clear()
    brief = search(Request(job, (16,), bounds, brief=True))
    assert (brief.evaluated, brief.fitting, brief.feasible) == (whole.evaluated, whole.fitting, whole.feasible)
    assert brief.best[0].options == whole.best[0].options and timed[0] == 1 and 1 < len(timed) < len(every)


def test_of_a_brief_search_in_which_nothing_fits_nothing_else_is_timed(timed: list[int]) -> None:
    """Nobody asks it for near misses."""
    job = Job(model="llama-3.1-405b", gpu="h100-sxm", global_batch=64)
    found = search(Request(job, (16,), parse_bounds({"recompute": "none"}, []), brief=True))
    assert found.evaluated and not found.fitting and timed == [1]


def test_of_a_search_in_which_nothing_fits_only_the_nearest_misses_are_timed(timed: list[int]) -> None:
    """With the same answer as where all layouts are, as somebody looks at each of them; many tie in memory."""
    job, bounds = Job(model="llama-3.1-405b", gpu="h100-sxm", global_batch=64), parse_bounds({"recompute": "none"}, [])
    request = Request(job, (16,), bounds)
    whole = search(request, every=lambda block: None)
    every = timed.copy()
    timed.clear()
    found = search(request)
    assert not found.fitting and found.evaluated == whole.evaluated and len(timed) < len(every)
    assert [(one.key, one.seconds, one.place) for one in found.kept.nearest.found] == [
        (one.key, one.seconds, one.place) for one in whole.kept.nearest.found
    ]


def test_families_of_one_group_are_folded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each has the numbers that it has alone."""
    folded: list[Group] = []

    def counted(group: Group, prices: Prices) -> Any:
        folded.append(group)
        return fold(group, prices)

    found = search(Request(Job(model="llama-7b", gpu="h100-sxm", global_batch=64), (8,), Bounds()))
    monkeypatch.setattr(likes, "fold", counted)
    together = [found.alike(one) for one in found.best]
    assert len(folded) == len({id(one.found.group) for one in found.best}) < len(found.best)
    assert together == [likes.alike([one.found], found.kept)[one.found.name] for one in found.best]
    assert len({one.near for one in together if one}) > 1


def test_each_stages_buckets_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose gradients all ranks get and those that go to their owners are the same, but where stages share a
    table."""
    counted: list[bool] = []

    def count(setup: Setup, stage: Stage, names: frozenset[str], shared: tuple[str, ...]) -> Number:
        counted.append(bool(shared))
        return 1

    monkeypatch.setattr(parameter_buckets, "_count", count)
    for model, every in (("llama-7b", [False]), ("gemma-2b", [False, True])):
        counted.clear()
        setup = resolve(Job(model=model, gpus=8, pp=2, global_batch=8))
        stage, names = stage_at(setup, 0), frozenset(("q.weight",))
        for owned in (False, True, False):
            parameter_buckets.parameter_buckets(setup, stage, names, owned=owned)
        assert counted == every, model


def test_layouts_that_come_after_those_asked_for_are_computed_again_only_where_they_might_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By their own numbers the third, as good as the second, may come before it."""
    kept = Kept(1e9, Objective("throughput"), float("inf"), 5, 64)
    group = groups_of("llama-7b", 8, 64, pp="1")[0]
    found = [Found(key, key, 1.0, group, (number,)) for number, key in enumerate((1.0, 2.0, 2.0 + 1e-9, 3.0, 4.0))]
    own = {0: 1.0, 1: 2.0 + 2e-9, 2: 2.0 + 1e-9}
    asked: list[int] = []

    def computed(one: Found, known: Any) -> Any:
        asked.append(one.place[0])
        report = SimpleNamespace(seconds=own[one.place[0]], memory=SimpleNamespace(peak=1.0))
        return SimpleNamespace(found=one, report=report)

    monkeypatch.setattr(shown, "choice", computed)
    kept.best = SimpleNamespace(found=found)  # type: ignore[assignment]
    assert [one.found.place[0] for one in shown.ranked(kept, 2, {})] == [0, 2]
    assert asked == [0, 1, 2]


def test_nothing_and_once_go_over_no_array() -> None:
    many = numpy.arange(5.0)
    assert plus(many, 0) is many and plus(0.0, many) is many and product(1.0, many) is many and product(many, 1) is many
    assert product(many, 0) == 0 and list(plus(many, 1)) == [1, 2, 3, 4, 5]


def test_the_slower_queue_sets_the_pace() -> None:
    assert paced_seconds(0.0, 0.0) == 0.0
    assert paced_seconds(3.0, 0.0) == paced_seconds(0.0, 3.0) == 3.0
    assert paced_seconds(2.0, 2.0) == pytest.approx(2 * 2 ** (1 / 6))
    assert paced_seconds(1.0, 3.0) == paced_seconds(3.0, 1.0) == pytest.approx((1 + 3**6) ** (1 / 6))


def test_presets_are_looked_for_once_in_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    look = catalog._looked_for

    def counted(kind: str, name: str) -> Any:
        asked.append((kind, name))
        return look(kind, name)

    monkeypatch.setattr(catalog, "_looked_for", counted)
    job = Job(model="llama-70b", gpu="h100-sxm", global_batch=64)
    search(Request(job, (16,), parse_bounds({"tp": "8", "cp": "1", "recompute": "full"}, []), top=5))
    assert ("models", "llama-70b") in asked
    assert len(asked) == len(set(asked))


def test_the_blocks_of_a_stage_are_priced_once_for_all_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    price = content.stage_compute

    def counted(*given: Any) -> Any:
        calls.append(given)
        return price(*given)

    monkeypatch.setattr(content, "stage_compute", counted)
    for chunks in (2, 8):
        calls.clear()
        job = {"gpus": 16, "pp": 4, "tp": 4, "vpp": chunks, "global_batch": 16, "schedule": "interleaved-1f1b"}
        timeline_of(step("deepseek-v3", gpu="h100-sxm", seq=4096, **job))
        assert len(calls) <= 4 * 2 + 2  # stages of at most two kinds of layers, embedding, head


def test_memory_and_time_of_a_step_build_its_stages_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    build = stages._Builder.stage

    def counted(self: Any, index: int) -> Any:
        built.append(self)
        return build(self, index)

    monkeypatch.setattr(stages._Builder, "stage", counted)
    step("llama-7b", gpus=8, zero=2)
    assert len({id(one) for one in built}) == 1


def test_a_layout_that_is_ranked_and_on_the_front_is_computed_once() -> None:
    job = Job(model="llama-7b", gpu="h100-sxm", global_batch=64)
    found = search(Request(job, (8,), parse_bounds({"tp": "1,2", "cp": "1"}, []), top=5))
    reports: dict[Any, set[int]] = {}
    for one in (*found.best, *found.front):
        reports.setdefault(one.found.name, set()).add(id(one.report))
    assert len(reports) < len(found.best) + len(found.front)
    assert all(len(same) == 1 for same in reports.values())
