"""Experts and the host: launches in loops, waits for the router's counts, CUDA graphs, and recipes by release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distsim import Job
from distsim.engine.exchanges.all_flows import network_of, price_of, stage_flows
from distsim.engine.footprint.saved import layer_saved_bytes
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.expert_modules import AFTER_FOUND
from distsim.engine.kernels.expert_passes import COMPOSED_BIAS
from distsim.engine.kernels.launches import (
    AFTER_COUNTS,
    GRAPHED_GAP,
    LOOP_ISSUE,
    LOOP_PRODUCT_ISSUE,
    PLAIN_ISSUE,
    ROUTER_KERNELS,
    launches,
)  # fmt: skip
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.kernels.plain_costs import STRIDED_PACE, slowed
from distsim.engine.layouts.prices import Prices
from distsim.engine.runs.precision import precision_of
from distsim.engine.runs.profile import framework_of
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.compose import layout_numbers, micro_batch, queued, stage_numbers
from distsim.engine.steps.work import work_of
from distsim.formulas.compute import BUSIEST_RANK
from distsim.interop.runs import Run
from distsim.layers.ledger import Block, Operation, dropped_by
from distsim.specs.recipes import Recipe
from distsim.specs.timing import Timing

TABLE = '"{release} NeMo Container / Pre-Training Performance"'
CELLS = {
    "model": "qwen3-30b-a3b", "gpu": "gb200", "n_gpus": "8", "seq_len": "4096", "micro_batch": "4", "ep": "8",
    "tp": "1", "pp": "1", "cp": "1", "dp": "8", "global_batch": "512", "precision": "fp8-mx",
    "framework": "megatron-bridge", "year": "2026",
}  # fmt: skip
TIMING = Timing(kernel_issue_seconds=1.6e-4, step_seconds=0.02).model_dump()


def row(release: str = "26.04", **cells: str) -> Run:
    return Run({**CELLS, "source": TABLE.format(release=release), **cells}, 1)


def job(**more: Any) -> Setup:
    options = {"model": "qwen3-30b-a3b", "gpu": "h100-sxm", "gpus": 8, "ep": 8, "seq": 4096, "global_batch": 64}
    return resolve(Job(**{**options, "framework": "megatron-core", **more}))


def changed(setup: Setup, **kernels: Any) -> Setup:
    return replace(setup, kernels=setup.kernels.model_copy(update=kernels))


def experts_of(setup: Setup) -> Block:
    return next(block for block, _ in build_stages(setup)[0].layers if block.name.startswith("moe"))


def operation(setup: Setup, name: str) -> Operation:
    return next(one for one in experts_of(setup).operations if one.name == name)


def first_stage(setup: Setup) -> dict[str, Any]:
    return stage_numbers(work_of(setup))[0]


def seconds(setup: Setup) -> float:
    one = micro_batch(first_stage(setup), layout_numbers(setup), TIMING)
    return float(one.seconds)


def test_a_loop_launches_as_many_kernels_as_a_rank_has_experts() -> None:
    setup = job()
    up = operation(setup, "mlp.experts.up")
    assert up.shape[3] == 128 / 8
    loop, grouped = launches(setup, up), launches(changed(setup, expert_products="grouped"), up)
    assert [one - other for one, other in zip(loop.kernels, grouped.kernels, strict=True)] == [16, 32]
    forward, backward = (one - other for one, other in zip(loop.issued, grouped.issued, strict=True))
    assert (forward, backward) == pytest.approx((16 * LOOP_PRODUCT_ISSUE, 32 * LOOP_PRODUCT_ISSUE))
    frozen = up._replace(weight_gradient=False)
    less = [launches(one, frozen).kernels[1] for one in (setup, changed(setup, expert_products="grouped"))]
    assert less[0] - less[1] == 16  # of its two backward products one is left
    narrow = launches(job(precision="fp8"), up)
    assert [one - other for one, other in zip(narrow.kernels, grouped.kernels, strict=True)] == [16 * 4, 16 * 7]
    quantised = [one - other for one, other in zip(narrow.issued, loop.issued, strict=True)]
    assert quantised == pytest.approx([16 * 3 * LOOP_ISSUE, 16 * 5 * LOOP_ISSUE])


def test_experts_that_are_modules_are_each_issued_from_python() -> None:
    """transformers before 5.0: some twelve operations a forward pass for each expert, which waits for its tokens, and
    gradients as large as all tokens' for each; on a few GPUs that is most of a step."""
    setup = resolve(Job(model="qwen3-30b-a3b", gpu="a100-sxm4-80gb", gpus=8, framework="deepspeed", zero=2, seq=4096))
    old = changed(setup, expert_products="modules", expert_modules="each")
    rows = experts_of(setup).operations
    more = [(launches(old, one), launches(setup, one)) for one in rows]
    assert sum(new.issued[0] - one.issued[0] for new, one in more) == 128 * 12
    assert sum(new.issued[1] - one.issued[1] for new, one in more) == 128 * 20
    assert sum(new.waits for new, _ in more) == 128 * AFTER_FOUND
    up = operation(setup, "mlp.experts.up")  # gate and up apart: frozen, two products less, and nothing else
    frozen = [launches(old, up._replace(weight_gradient=kept)).issued[1] for kept in (True, False)]
    plain = [launches(setup, up._replace(weight_gradient=kept)).issued[1] for kept in (True, False)]
    assert (frozen[0] - frozen[1]) - (plain[0] - plain[1]) == 128 * 2
    dispatch = operation(setup, "mlp.dispatch")
    one, all_of = moved_bytes(old, dispatch), moved_bytes(setup, dispatch)
    assert one[0] == all_of[0] and one[1] - all_of[1] == 128 * 4 * 4096 * 2048 * 2
    assert seconds(old) > 3 * seconds(setup)
    assert seconds(changed(old, expert_tokens="all")) < 1.5 * seconds(changed(setup, expert_tokens="all"))


def test_replays_know_when_experts_became_tensors() -> None:
    cells = {"source": "a table", "model": "qwen3-30b-a3b", "gpu": "a100-sxm4-80gb", "n_gpus": "8", "seq_len": "4096",
             "micro_batch": "1", "global_batch": "8", "zero_stage": "2", "precision": "bf16"}  # fmt: skip
    for framework in ("deepspeed", "huggingface", "fsdp"):
        kernels = [setup_of(Run({**cells, "framework": framework, "year": year}, 1)).kernels.expert_products
                   for year in ("2024", "2025", "2026")]  # fmt: skip
        assert kernels == ["modules", "modules", "grouped"]


def test_the_gpu_waits_for_the_host_only_where_the_host_reads_the_routers_counts() -> None:
    setup = job()
    dispatch = operation(setup, "mlp.dispatch")
    found = launches(setup, dispatch)
    assert found.waits == found.issued[0] * AFTER_COUNTS
    assert launches(changed(setup, expert_counts="device"), dispatch).waits == 0
    assert all(not launches(setup, one).waits for one in experts_of(setup).operations if one is not dispatch)
    assert seconds(setup) > seconds(changed(setup, expert_counts="device"))


def test_a_composed_router_is_many_launches_that_cost_the_host_little() -> None:
    setup = job()
    router = operation(setup, "mlp.router")
    composed, fused = launches(setup, router), launches(changed(setup, routing="fused"), router)
    for index, more in enumerate(ROUTER_KERNELS):
        assert composed.kernels[index] - fused.kernels[index] == more
        assert composed.issued[index] - fused.issued[index] == pytest.approx(more * PLAIN_ISSUE)


def test_graphs_spare_the_host_and_shorten_gaps() -> None:
    """Of modules: all but what depends on where tokens go; of whole steps: everything."""
    plain = job(precision="fp8")
    modules, steps = changed(plain, graphs="modules"), changed(plain, graphs="iteration")
    numbers = [first_stage(one) for one in (plain, modules, steps)]
    issued = [float(one["forward.issued"]) for one in numbers]
    assert issued[0] > 1.5 * issued[1] > 0 == issued[2]
    assert numbers[2]["forward.waits"] == 0 < numbers[1]["forward.waits"]
    core = operation(plain, "attention.core")
    assert launches(modules, core).kernels[0] == launches(plain, core).kernels[0] * GRAPHED_GAP
    times = [seconds(one) for one in (plain, modules, steps)]
    assert times[0] > times[1] > times[2]


def test_graphs_of_routers_leave_attention_to_the_host() -> None:
    """Megatron-LM's --cuda-graph-scope moe_router: an MLP up to its router."""
    plain = job(precision="fp8")
    routers, modules = changed(plain, graphs="routers"), changed(plain, graphs="modules")
    issued = [float(first_stage(one)["forward.issued"]) for one in (plain, routers, modules)]
    assert issued == sorted(issued, reverse=True) and len(set(issued)) == 3
    for name, held in (("mlp.norm", True), ("mlp.router", True), ("attention.core", False), ("mlp.dispatch", False)):
        own = operation(plain, name)
        assert (launches(routers, own).issued == (0.0, 0.0)) is held


def test_the_busiest_rank_has_more_tokens_unless_a_benchmark_balances_them() -> None:
    learned = job()
    balanced = changed(learned, router="balanced")
    one, other = first_stage(learned), first_stage(balanced)
    assert one["forward.grouped"] == pytest.approx(BUSIEST_RANK * other["forward.grouped"])
    assert one["ep_forward"] == pytest.approx(BUSIEST_RANK * other["ep_forward"])
    stated = first_stage(job(expert_imbalance=1.5))
    assert stated["forward.grouped"] == pytest.approx(1.5 * other["forward.grouped"])
    assert stated["ep_forward"] == pytest.approx(1.5 * other["ep_forward"], rel=0.06)  # but for fixed delays
    alone = job(ep=1)
    assert first_stage(alone)["forward.grouped"] == first_stage(changed(alone, router="balanced"))["forward.grouped"]
    assert setup_of(row(notes="MoE: token distribution force-balanced, dropless")).kernels.router == "balanced"
    assert setup_of(row()).kernels.router == "learned"


def test_exchanges_of_experts_hide_behind_all_other_micro_batches() -> None:
    setup = changed(job(), expert_overlap=True)
    numbers, layout = first_stage(setup), layout_numbers(setup)
    assert setup.layout.micro_batches == 8
    shown = sum(queued(numbers, layout, TIMING)[1]["expert_parallel"])
    left = micro_batch(numbers, layout, TIMING).exchange["expert_parallel"]
    assert left == pytest.approx(shown / 8)


def test_composed_biases_of_experts_pass_over_their_output_many_times() -> None:
    setup = job(model="gpt-oss-20b", gpus=8, ep=8)
    combine = operation(setup, "mlp.combine")
    composed, fused = moved_bytes(setup, combine), moved_bytes(changed(setup, expert_bias="fused"), combine)
    elements = combine.shape[0] * combine.shape[1]
    assert composed[0] - fused[0] == COMPOSED_BIAS[0] * elements
    assert composed[1] - fused[1] == COMPOSED_BIAS[1] * elements


def test_clamps_of_plain_torch_pass_over_the_activations_input_and_make_the_host_wait() -> None:
    setup = job(model="gpt-oss-20b", gpus=8, ep=8)
    activation = operation(setup, "mlp.experts.activation")
    assert setup.kernels.expert_clamp == "composed"
    fused = changed(setup, expert_clamp="fused")
    inner = setup.model.experts.ffn * operation(setup, "mlp.experts.up").shape[0] * 4  # four experts on the rank
    more = [a - b for a, b in zip(moved_bytes(setup, activation), moved_bytes(fused, activation), strict=True)]
    assert more == pytest.approx([16 * inner, 30 * inner])
    assert launches(setup, activation).waits == 1
    assert launches(fused, activation).waits == 0
    assert moved_bytes(job(), operation(job(), "mlp.experts.activation")) == moved_bytes(
        changed(job(), expert_clamp="fused"), operation(job(), "mlp.experts.activation")
    )


def test_rotation_that_scales_is_composed() -> None:
    setup = job(model="gpt-oss-20b", gpus=8, ep=8)
    setup = changed(setup, qkv_matrices=3)  # packed, gradients are put side by side besides
    heads = operation(setup, "attention.heads")
    fused = moved_bytes(changed(setup, rope_scaled="fused"), heads)
    slower = slowed(STRIDED_PACE, setup.accelerator)
    assert moved_bytes(setup, heads) == pytest.approx([5 * slower * fused[0], 3 * slower * fused[1]])


def test_tokens_around_an_all_to_all_are_ordered_twice_and_sent_to_each_expert() -> None:
    fused = job(framework="megatron-bridge")
    around = changed(fused, expert_order="around")
    for name in ("mlp.dispatch", "mlp.combine"):
        plain = moved_bytes(fused, operation(fused, name))
        assert moved_bytes(around, operation(around, name)) == pytest.approx([2 * one for one in plain])
    network, exchange = network_of(fused), exchange_of(fused)
    sent = [
        sum(flow.bytes_logical for flow in stage_flows(setup, exchange, network, build_stages(setup)[0])
            if flow.span.group == "ep")
        for setup in (fused, around)
    ]  # fmt: skip
    assert sent[0] < sent[1]


def test_a_rack_of_experts_is_reached_as_fast_as_its_kernels_send() -> None:
    """HybridEP's rate hardly falls with the ranks, taken where NCCL is slower: not in long messages."""
    name = {"framework": "megatron-bridge", "model": "deepseek-v3", "gpu": "gb200"}
    big, small = (job(**name, gpus=n, ep=n, global_batch=n) for n in (64, 8))
    for setup in (big, small):
        network = network_of(setup)
        flows = stage_flows(setup, exchange_of(setup), network, build_stages(setup)[0])
        flow = next(one for one in flows if one.span.group == "ep")
        own, library = price_of(flow, network).seconds, price_of(flow._replace(own_rate=0.0), network).seconds
        remembered = Prices()
        assert remembered(flow, network).seconds == own
        assert remembered(flow._replace(own_rate=0.0), network).seconds == library
        assert own == min(library, flow.bytes_logical / flow.own_rate)


def test_operations_may_be_computed_again_by_name() -> None:
    plain = job()
    names = ("mlp.experts.down", "norm")
    again = changed(replace(plain, layout=plain.layout.with_(selective=1)), selective=names)
    block = experts_of(plain)
    assert {one.name for one in block.operations if dropped_by(one, names)} >= {"mlp.experts.down", "mlp.norm"}
    assert not dropped_by(operation(plain, "mlp.residual"), ("", "norm"))
    assert layer_saved_bytes(again, experts_of(again), 0) < layer_saved_bytes(plain, block, 0)
    repeated = first_stage(again)["recompute.grouped"]
    assert 0 < repeated < first_stage(again)["forward.grouped"]


@pytest.mark.parametrize(
    ("release", "cells", "graphs", "counts"),
    [
        ("25.07", {}, "none", "host"), ("25.09", {}, "iteration", "device"), ("25.11", {}, "modules", "host"),
        ("26.04", {}, "routers", "host"), ("26.04", {"precision": "bf16"}, "modules", "host"),
        ("26.04", {"gpu": "h100-sxm", "precision": "bf16"}, "routers", "host"),
        ("26.04", {"gpu": "b200-sxm", "model": "deepseek-v3"}, "none", "host"),
       
        ("26.06", {}, "iteration", "device"), ("26.06", {"precision": "bf16"}, "modules", "host"),
        ("26.06", {"gpu": "h100-sxm", "precision": "fp8"}, "none", "host"),
        ("26.06", {"model": "qwen3-8b", "ep": ""}, "none", "host"),
        ("26.04", {"gpu": "b200-sxm", "model": "qwen3-235b-a22b"}, "none", "host"),
    ],
)  # fmt: skip
def test_recipes_hold_since_their_release(release: str, cells: dict[str, str], graphs: str, counts: str) -> None:
    setup = setup_of(row(release, **cells))
    assert (setup.kernels.graphs, setup.kernels.expert_counts) == (graphs, counts)


def test_a_job_of_ones_own_has_the_latest_recipes_and_none_that_ended() -> None:
    own = {"framework": "megatron-bridge", "gpu": "gb300"}
    assert job(**own, precision="mxfp8").kernels.graphs == "iteration"
    assert job(**own, precision="fp8").kernels.graphs == "routers"  # those of 25.09 dropped tokens
    assert job(framework="megatron-bridge", precision="bf16", gpu="gb200").kernels.graphs == "modules"
    assert job(precision="fp8", gpu="gb300").kernels.graphs == "none"


def test_recipes_say_what_is_computed_again_where_the_row_does_not() -> None:
    cells = {"model": "deepseek-v3", "n_gpus": "256", "pp": "8", "ep": "8", "dp": "32", "global_batch": "4096"}
    said = setup_of(row("26.04", **cells, gpu="b300-sxm"))
    assert said.recompute == "selective"
    assert said.kernels.selective == ("attention.query_up", "attention.kv_up")
    assert setup_of(row("26.04", **cells, gpu="b300-sxm", recompute="none")).recompute == "none"
    assert setup_of(row("26.06", **cells, gpu="b300-sxm")).recompute == "none"
    assert job(framework="megatron-bridge", gpu="b300-sxm", gpus=64, model="deepseek-v3").recompute == "none"


def test_precision_of_recipes_by_year() -> None:
    for year, taken in (("2023", "bf16-fp32-grads"), ("2025", "bf16")):
        run = Run({**CELLS, "framework": "nemo", "precision": "bf16", "year": year}, 1)
        assert precision_of(run, framework_of(run)) == taken


def test_a_whole_steps_graph_is_as_much_faster_as_measured() -> None:
    """The same layout on GB200 took 10.04 s in the tables of 26.04 and 6.44 in those of 26.06."""
    before, after = (
        seconds(setup_of(row(release, notes="token distribution force-balanced"))) for release in ("26.04", "26.06")
    )
    assert before / after == pytest.approx(10.04 / 6.44, rel=0.12)


def test_what_a_recipe_leaves_out_fits_everything() -> None:
    setup = job()
    chip = (setup.accelerator.architecture, setup.accelerator.name)
    assert Recipe().fits(chip, "bf16", setup.model)
    assert not Recipe(gpus=("gb200",)).fits(chip, "bf16", setup.model)
    assert not Recipe(experts=False).fits(chip, "bf16", setup.model)
    assert Recipe(since=2025.5, until=2026).released(2025.5)
    assert not Recipe(since=2025.5, until=2026).released(2026)


def test_gathers_of_tensor_parallel_ranks_carry_what_products_read() -> None:
    """8 bits under fp8, but for the head's; what is reduced stays in 16."""

    def sizes(precision: str, **kernels: Any) -> dict[str, float]:
        setup = changed(job(model="llama-7b", ep=1, tp=2, precision=precision), **kernels)
        block = build_stages(setup)[0].layers[0][0]
        found = next(one for one in block.operations if one.name == "mlp.up").collectives
        return {c.op: float(c.bytes_logical) for c in found if c.phase == "backward"}

    wide, narrow = sizes("fp8", tp_gathers="wide"), sizes("fp8")
    assert narrow["all_gather"] == wide["all_gather"] / 2
    assert narrow["reduce_scatter"] == wide["reduce_scatter"]
    assert sizes("bf16") == wide
    setup = job(model="llama-7b", ep=1, tp=2, precision="fp8")
    head = build_stages(setup)[0].head
    assert head is not None
    gathers = [c for one in head.operations for c in one.collectives if c.op == "all_gather" and c.bytes_logical]
    assert gathers and all(c.bytes_each == 2 for c in gathers)
