"""Experts in plain torch: its grouped product and indexing against what was measured of them, biases, clamps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distsim import Job, catalog
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.expert_passes import (
    CHAINED_ROW_SECONDS,
    COMBINED,
    INDEX_ADDED,
    LOOPED_BIAS,
    REPEATED_BIAS,
    bias_passes,
    exchange_passes,
)
from distsim.engine.kernels.launches import CALL_KERNELS, DTENSOR_ISSUE, LOOP_ISSUE, REDISTRIBUTE_ISSUE, launches
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.kernels.plain_costs import STRIDED_PACE, WIDE_BROADCAST_PACE, slowed
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation
from tests.test_recipes import changed, operation

TYPICAL_STREAM = 0.72
"""Share of a Blackwell GPU's bandwidth at which kernels that move bytes run, as fitted."""


def titan(**more: Any) -> Setup:
    options = {"model": "qwen3-30b-a3b", "gpu": "b200-sxm", "gpus": 8, "seq": 4096, "global_batch": 64, "zero": 3}
    return resolve(Job(**{**options, "framework": "torchtitan", **more}))


def with_rows(setup: Setup, rows: int, width: int) -> Operation:
    """The dispatch of so many rows."""
    size = rows * width * 2.0
    return operation(setup, "mlp.dispatch")._replace(bytes_read=size, bytes_written=size, shape=(rows, width))


def test_adding_rows_by_index_takes_about_what_was_measured_on_b200() -> None:
    """pytorch/ao pull request 4623: 1.848 ms, and 0.526 ms in a kernel written for it; each row once."""
    setup = titan()
    one = setup.model.experts.model_copy(update={"per_token": 1})
    setup = replace(setup, model=setup.model.model_copy(update={"experts": one}))
    found = exchange_passes(setup, with_rows(setup, 196_608, 2_048)).backward / (8e12 * TYPICAL_STREAM)
    assert found == pytest.approx(1.848e-3, rel=0.25)


def test_rows_of_one_token_are_added_where_it_is_and_behind_an_all_to_all_once_more() -> None:
    setup = titan()
    dispatch = operation(setup, "mlp.dispatch")
    size = dispatch.shape[0] * dispatch.shape[1] * 2
    sent = titan(ep=8)
    far = operation(sent, "mlp.dispatch")
    assert far.shape == dispatch.shape
    slower = slowed(STRIDED_PACE, setup.accelerator)
    assert slower > 2
    for rows, pace in (("vectorised", 1.0), ("strided", slower)):  # until torch 2.8
        near, away = (changed(one, rows_taken=rows) for one in (setup, sent))
        assert exchange_passes(near, dispatch) == pytest.approx((2 * pace * size, INDEX_ADDED * size * (1 + 1 / 8)))
        assert exchange_passes(away, far) == pytest.approx((4 * pace * size, INDEX_ADDED * size * (3 + 1 / 8)))
    for name, ended in (("torchtitan", 2025.31), ("huggingface", 2025.6)):
        assert catalog.load("frameworks", name).earlier[ended]["rows_taken"] == "strided"


def test_rows_that_are_sent_once_are_selected_and_added() -> None:
    """torchtitan's DeepEP leaves one index_select and one scatter_add_ to torch, which also take each other's place
    backward; without other ranks nothing is sent, and nothing changes."""
    alone, sent = titan(), titan(ep=8)
    traffic = sent.framework.traffic.model_copy(update={"expert_copies": "once"})
    both = [replace(one, framework=one.framework.model_copy(update={"traffic": traffic})) for one in (alone, sent)]
    dispatch, combine = (operation(sent, f"mlp.{name}") for name in ("dispatch", "combine"))
    elements = dispatch.shape[0] * dispatch.shape[1]
    slower = slowed(STRIDED_PACE, sent.accelerator)
    assert exchange_passes(both[1], dispatch) == pytest.approx((4 * elements, 6 * slower * elements))
    assert exchange_passes(both[1], combine) == pytest.approx((6 * slower * elements, 4 * elements))
    assert exchange_passes(both[0], dispatch) == pytest.approx(exchange_passes(alone, dispatch))
    each = exchange_passes(sent, dispatch), exchange_passes(sent, combine)
    own = exchange_passes(both[1], dispatch), exchange_passes(both[1], combine)
    assert sum(sum(one) for one in each) > 2 * sum(sum(one) for one in own)


def test_a_compiler_takes_in_what_stands_beside_the_indexing_but_not_in_older_releases() -> None:
    combine = operation(titan(), "mlp.combine")
    elements = combine.shape[0] * combine.shape[1]
    older = changed(titan(compile=True), expert_index="eager")
    for setup, kind in ((titan(), "eager"), (titan(compile=True), "compiled"), (older, "eager")):
        added = slowed(STRIDED_PACE, setup.accelerator) if kind == "eager" else 1.0
        broadcast = slowed(WIDE_BROADCAST_PACE, setup.accelerator)
        expected = [
            elements * (one.plain + broadcast * one.broadcast + one.taken + added * one.added) for one in COMBINED[kind]
        ]
        assert moved_bytes(setup, combine) == pytest.approx(expected)
    assert catalog.load("frameworks", "torchtitan").earlier[2025]["expert_index"] == "eager"


def test_a_compiled_block_of_qwen3_235b_moves_tokens_as_its_profile_says() -> None:
    """94 layers of 16,384 tokens on each of 32 B300, experts on eight ranks: 0.71 s a step are dispatch and combination
    of torchtitan's full recomputation (PrimeIntellect-ai/prime-rl docs/performance.md, 1a8e0274). Rows that a compiler
    takes by index had been priced as torch's own kernels take them: 1.37 s."""
    setup = titan(model="qwen3-235b-a22b", gpu="b300-sxm", gpus=32, ep=8, zero=3, seq=16384, micro_batch=1,
                  global_batch=32, compile=True, recompute="full")  # fmt: skip
    seconds = 0.0
    for name in ("mlp.dispatch", "mlp.combine"):
        forward, backward = operation_sums(setup, Chip(setup), operation(setup, name))
        seconds += 94 * float(2 * forward.memory + backward.memory)
    assert seconds == pytest.approx(0.71, rel=0.15)


def test_kernels_written_for_it_and_experts_that_see_every_token_order_nothing() -> None:
    setup = titan()
    dispatch = operation(setup, "mlp.dispatch")
    size = dispatch.bytes_read + dispatch.bytes_written
    for other in ({"expert_index": "fused"}, {"expert_tokens": "all"}):
        assert exchange_passes(changed(setup, **other), dispatch) == pytest.approx((size, 2 * size))
    assert titan(framework="nemo-automodel").kernels.expert_index == "fused"


def test_the_weighted_sum_is_a_kernel_for_each_step_unless_compiled() -> None:
    combine = operation(titan(), "mlp.combine")
    assert launches(titan(), combine).kernels == (5, 7)
    assert launches(titan(compile=True), combine).kernels == (1, 1)


def test_modules_on_dtensors_cost_the_host_more_but_where_layers_are_compiled() -> None:
    whole, shared = (resolve(Job(model="llama-3-8b", gpus=4, framework="torchtitan", tp=tp)) for tp in (1, 4))
    for name, kind, modules, gathers in (
        ("mlp.norm", "norm", 1, 0), ("attention.qkv", "matmul", 3, 1), ("mlp.up", "matmul", 2, 1),
        ("attention.projection", "matmul", 1, 1), ("attention.core", "attention", 0, 0), ("mlp.activation", "", 0, 0),
    ):  # fmt: skip
        alone, split = (
            launches(setup, next(one for one in build_stages(setup)[0].layers[0][0].operations if one.name == name))
            for setup in (whole, shared)
        )
        more = [modules * each for each in DTENSOR_ISSUE.get(kind, (0, 0))]
        calls = [gathers * (CALL_KERNELS + REDISTRIBUTE_ISSUE)] * 2
        expected = [sum(parts) for parts in zip(alone.issued, more, calls, strict=True)]
        assert split.issued == pytest.approx(expected)
        assert split.kernels == pytest.approx([one + gathers for one in alone.kernels])


def test_compiled_layers_and_plain_tensors_know_nothing_of_dtensors() -> None:
    norm = operation(titan(), "mlp.norm")
    compiled = launches(titan(compile=True), norm).issued
    assert launches(titan(tp=4, compile=True), norm).issued == compiled
    assert (
        launches(titan(tp=4, framework="deepspeed"), norm).issued == launches(titan(framework="deepspeed"), norm).issued
    )
    experts = operation(titan(), "mlp.experts.up")  # which take their weights out of DTensors first
    assert launches(titan(tp=4), experts).issued == launches(titan(framework="fsdp", tp=4), experts).issued
    dense = Job(model="llama-3-8b", gpus=4, tp=4, framework="nemo-automodel", compile=True)
    assert launches(resolve(dense), norm).issued == compiled


def test_biases_of_both_products_are_repeated_and_their_gradients_added_up_by_index() -> None:
    setup = titan(model="gpt-oss-20b")
    first, second = (operation(setup, name) for name in ("mlp.experts.activation", "mlp.combine"))
    wide, narrow = 2 * first.shape[0], second.shape[0] * second.shape[1]
    assert wide == 2 * narrow  # gate and up beside the output, all 2,880 wide
    for one, elements in ((first, wide), (second, narrow)):
        assert bias_passes(setup, one) == pytest.approx((elements * REPEATED_BIAS[0], elements * 2 * INDEX_ADDED))
        assert bias_passes(titan(model="gpt-oss-20b", compile=True), one).forward == 0
        assert bias_passes(changed(setup, expert_bias="fused"), one) == (0, 0)
    plain = titan()
    assert bias_passes(plain, operation(plain, "mlp.combine")) == (0, 0)


def test_megatron_adds_biases_expert_by_expert() -> None:
    """TEGroupedMLP._apply_bias as torch's autograd runs it: of 16 experts a product and a sum each, then one
    concatenation and one cast; where biases are frozen only the routers' weights have gradients."""
    job = {"model": "gpt-oss-120b", "gpu": "h100-sxm", "gpus": 8, "ep": 8, "framework": "megatron-core"}
    setup, frozen = resolve(Job(**job)), resolve(Job(**job, lora_rank=8, lora_targets="q,v"))
    for one, backward in ((setup, 16 * 8 + 3), (frozen, 16 * 3 + 3)):
        combine, fused = operation(one, "mlp.combine"), changed(one, expert_bias="fused")
        own, none = launches(one, combine), launches(fused, combine)
        kernels = 16 * 2 + 2, backward
        assert [a - b for a, b in zip(own.kernels, none.kernels, strict=True)] == pytest.approx(kernels)
        issued = [a - b for a, b in zip(own.issued, none.issued, strict=True)]
        assert issued == pytest.approx([count * LOOP_ISSUE for count in kernels])
    dense = resolve(Job(**{**job, "model": "qwen3-30b-a3b"}))
    assert (
        launches(dense, operation(dense, "mlp.combine")).kernels
        == launches(changed(dense, expert_bias="fused"), operation(dense, "mlp.combine")).kernels
    )


def tuned(**fields: object) -> Setup:
    return resolve(Job(model="gpt-oss-20b", **{"gpu": "b200-sxm", "framework": "huggingface", **fields}))


def test_gradients_of_biases_taken_by_index_wait_for_the_busiest_experts_rows_one_by_one() -> None:
    setup = tuned(micro_batch=4, seq=4096)
    first, second = (operation(setup, name) for name in ("mlp.experts.activation", "mlp.combine"))
    busiest = 2 * 4 * 4096 * 4 / 32  # twice the mean of four experts a token among 32
    chain = CHAINED_ROW_SECONDS * busiest * setup.accelerator.bandwidth
    narrow = second.shape[0] * second.shape[1]
    assert bias_passes(setup, second) == pytest.approx((narrow * REPEATED_BIAS[0], chain))
    assert bias_passes(setup, first) == pytest.approx((2 * narrow * REPEATED_BIAS[0], chain))  # as many rows
    slow = tuned(micro_batch=4, seq=4096, gpu="l40s")  # whose memory takes longer than one row after another
    assert bias_passes(slow, first).backward == pytest.approx(2 * narrow * 2 * INDEX_ADDED)
    frozen = tuned(micro_batch=4, seq=4096, lora_rank=8)
    assert bias_passes(frozen, operation(frozen, "mlp.combine")) == pytest.approx((narrow * REPEATED_BIAS[0], 0))
    looped = changed(setup, expert_products="modules")
    assert bias_passes(looped, second) == pytest.approx(tuple(narrow * each for each in LOOPED_BIAS))
    assert bias_passes(tuned(micro_batch=4, seq=4096, framework="halo"), second) == (0, 0)


def test_clamps_of_slices_cost_more_than_of_halves_and_no_host_waits() -> None:
    setup = titan(model="gpt-oss-20b")
    activation = operation(setup, "mlp.experts.activation")
    halves = changed(setup, expert_clamp="composed")
    assert all(a > b for a, b in zip(moved_bytes(setup, activation), moved_bytes(halves, activation), strict=True))
    assert launches(setup, activation).waits == 0 < launches(halves, activation).waits


@pytest.mark.parametrize(("gpu", "slower"), [("b200-sxm", 1 / 0.77), ("gb300", 1 / 0.77), ("h100-sxm", 1.0)])
def test_torchs_grouped_product_is_slower_than_libraries_on_blackwell_alone(gpu: str, slower: float) -> None:
    setup = titan(gpu=gpu)
    up = operation(setup, "mlp.experts.up")
    own, other = (operation_sums(one, Chip(one), up) for one in (setup, changed(setup, expert_kernel="library")))
    for mine, theirs in zip(own, other, strict=True):
        assert mine.grouped == pytest.approx(theirs.grouped * slower)


def test_of_narrow_products_only_the_weight_gradient_is() -> None:
    setup = titan(precision="torchao-mxfp8")
    up = operation(setup, "mlp.experts.up")
    own, other = (operation_sums(one, Chip(one), up) for one in (setup, changed(setup, expert_kernel="library")))
    assert own[0].grouped8 == pytest.approx(other[0].grouped8)
    assert 1.1 < own[1].grouped8 / other[1].grouped8 < 1.2  # half of backward at 0.76 of the rate


def test_padding_of_2025_moves_tokens_once_more_where_experts_are_not_spread() -> None:
    """pytorch/torchtitan, indices_padding_wrapper (until pull request 2774): experts on every rank cost the order of an
    exchange, and a row of zeros is put behind the tokens on any number of ranks."""
    assert catalog.load("frameworks", "torchtitan").earlier[2025]["expert_padding"] is True
    assert titan().kernels.expert_padding is False
    for setup in (titan(), titan(ep=8)):
        dispatch = operation(setup, "mlp.dispatch")
        size = dispatch.shape[0] * dispatch.shape[1] * 2
        padded = exchange_passes(changed(setup, expert_padding=True), dispatch)
        assert padded == pytest.approx(((4 + 2) * size, INDEX_ADDED * size * (3 + 1 / 8)))


@pytest.mark.parametrize("part", ["up", "activation", "down"])
@pytest.mark.parametrize("ep", [1, 2, 8])
def test_experts_that_are_mlps_cost_the_host_what_as_many_dense_ones_do(part: str, ep: int) -> None:
    """Megatron core's SequentialMLP: each of a rank's experts is the MLP of a dense layer."""
    job = {"framework": "megatron-lm", "gpu": "h100-sxm", "gpus": 8, "seq": 2048, "micro_batch": 1}
    setup, mlp = (resolve(Job(**job, **more)) for more in ({"model": "mixtral-8x7b", "ep": ep}, {"model": "llama-7b"}))
    in_turn = changed(setup, expert_products="sequential")
    found = launches(in_turn, operation(setup, f"mlp.experts.{part}"))
    one = launches(mlp, next(row for row in build_stages(mlp)[0].layers[0][0].operations if row.name == f"mlp.{part}"))
    for own, theirs in ((found.kernels, one.kernels), (found.issued, one.issued)):
        assert own == pytest.approx(tuple(8 / ep * each for each in theirs))
    for name in ("mlp.router", "mlp.dispatch", "mlp.combine"):
        assert launches(in_turn, operation(setup, name)) == launches(setup, operation(setup, name))


@pytest.mark.parametrize(
    ("notes", "products"),
    [("no grouped GEMM", "sequential"), ("moe_grouped_gemm: false", "sequential"), ("SequentialMLP", "sequential"),
     ("grouped GEMM instead of SequentialMLP", "loop"), ("moe_grouped_gemm=True", "loop"), ("", "loop")],
)  # fmt: skip
def test_notes_tell_of_megatrons_experts_one_after_another(notes: str, products: str) -> None:
    cells = {"source": "a log", "year": "2024", "model": "mixtral-8x7b", "gpu": "h100-sxm", "n_gpus": "64", "ep": "4",
             "seq_len": "4096", "micro_batch": "1", "global_batch": "256", "framework": "megatron-core"}  # fmt: skip
    assert setup_of(Run({**cells, "notes": notes}, 1)).kernels.expert_products == products
