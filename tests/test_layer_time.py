"""Seconds of one layer and what stands beside it: overlap in backward, hosts, heads off tensor cores, networks."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.alignment import alignment
from distsim.engine.kernels.chip import Chip
from distsim.engine.kernels.compute import operation_sums
from distsim.engine.kernels.passes import moved_bytes
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.compose import compose, layout_numbers, micro_batch, queued, stage_numbers
from distsim.engine.steps.work import work_of
from distsim.formulas.compute import matmul_share, optimizer_traffic_bytes
from distsim.formulas.step import BLOCKING_SECONDS
from distsim.interop.runs import Run
from distsim.layers.ledger import Operation
from distsim.specs.job import Job
from distsim.specs.timing import Timing

LAYER: dict[str, Any] = {
    "model": "megatron-22b", "gpu": "a100-sxm4-80gb", "gpus": 8, "tp": 8, "micro_batch": 4, "global_batch": 4,
    "seq": 2048, "attention": "eager", "framework": "megatron-lm", "precision": "fp16",
}  # fmt: skip
# Korthikanti et al. 2022 (arXiv:2205.05198), table 4: milliseconds forward and backward of a layer of the 22B model.
TABLE_4 = [
    ("none", False, 7.7, 11.9), ("none", True, 7.2, 11.8), ("selective", True, 7.2, 13.1), ("full", False, 7.7, 19.5),
]  # fmt: skip
# What its authors' kernels reached: products near the best measured ones, elementwise kernels at 70% of the bandwidth.
A100 = Timing(matmul=0.91, stream=0.72, tensor_factor=1.0, exposed_fraction=0.34, kernel_gap_seconds=4e-6)


def _setup(**options: Any) -> Setup:
    return resolve(Job.read({**LAYER, **options}))


def _operation(setup: Setup, name: str) -> Operation:
    block = build_stages(setup)[0].layers[0][0]
    return next(one for one in block.operations if one.name == name)


@pytest.mark.parametrize(("recompute", "parallel", "forward", "backward"), TABLE_4)
def test_table_4(recompute: str, parallel: bool, forward: float, backward: float) -> None:
    setup = _setup(recompute=recompute, sequence_parallel=parallel)
    stage = stage_numbers(work_of(setup))[0]
    alone, exchange, _ = queued(stage, layout_numbers(setup), A100.model_dump())
    each = [1e3 / stage["layers"] * (seconds + exchange["tensor_parallel"][i]) for i, seconds in enumerate(alone)]
    assert each[0] == pytest.approx(forward, rel=0.05)
    assert each[1] == pytest.approx(backward, rel=0.05)


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "v100-sxm2-32gb"])
@pytest.mark.parametrize("size", [2**23, 2**27, 2**31])
def test_a_gather_and_a_scatter_take_no_less_than_an_all_reduce(gpu: str, size: int) -> None:
    """They are its two halves on the same rings."""
    one, *halves = (
        distsim.collective(op=op, gpu=gpu, gpus=8, gpus_per_node=8, bytes=size).seconds
        for op in ("all_reduce", "all_gather", "reduce_scatter")
    )
    assert 0.98 * one <= sum(halves) <= 1.35 * one


def test_exchanges_of_gradients_hide_beside_products() -> None:
    """Megatron-LM starts them before the products; Megatron-DeepSpeed waits for each."""
    for name, hides in (("megatron-lm", True), ("megatron-2021", False), ("megatron-deepspeed", False)):
        stage = stage_numbers(work_of(_setup(framework=name, sequence_parallel=False)))[0]
        assert (stage["tp_beside"] > 0) == hides
        assert stage["tp_backward"] == pytest.approx((0.0 if hides else 1.0) * stage["tp_forward"], rel=0.1, abs=0.01)
        assert 0 < stage["backward.cover"] < stage["backward.matmul"] / 2


def test_a_host_that_sets_the_pace_hides_exchanges() -> None:
    setup = _setup()
    stage, y = stage_numbers(work_of(setup))[0], layout_numbers(setup)
    fast, slow = ({**A100.model_dump(), "kernel_issue_seconds": each} for each in (1e-6, 1e-2))
    assert sum(queued(stage, y, fast)[1]["tensor_parallel"]) > 20 * sum(queued(stage, y, slow)[1]["tensor_parallel"])


def test_a_host_that_sets_the_pace_hides_what_is_gathered() -> None:
    """It goes on while the GPU waits: what never hides beside computation costs nothing beside a slow host."""
    setup = _setup(zero=3, tp=1, micro_batch=1, global_batch=8, framework="deepspeed")
    (stage,), y = stage_numbers(work_of(setup)), layout_numbers(setup)
    assert stage["gather_forward"] > 0 < stage["reduce_each"]
    left = []
    for each in (1e-7, 1e-6, 1e-3):
        timing = {**A100.model_dump(), "kernel_issue_seconds": each}
        left.append(micro_batch(stage, y, timing).others["data_parallel"])
    gathers, reduces = sum(stage[f"gather_{phase}"] for phase in ("forward", "backward")), stage["reduce_each"]
    least = A100.exposed_fraction * (gathers * A100.gather_factor + reduces * A100.data_factor)
    assert left[0] == pytest.approx(left[1], rel=1e-3) and left[0] >= least * (1 - 1e-3)
    assert left[2] < left[0] / 100


def test_a_host_that_waits_for_each_kernel_adds_its_time() -> None:
    setup = _setup(framework="megatron-deepspeed-2022")
    stages, y = stage_numbers(work_of(setup)), layout_numbers(setup)
    assert y["blocking"] == 1
    timing = A100.model_dump()
    waiting, ahead = (sum(compose(stages, {**y, "blocking": how}, timing).values()) for how in (1, 0))
    before, after = stages[0]["forward.kernels"], stages[0]["backward.kernels"]
    issued = (before + 0.7 * after) * timing["kernel_issue_seconds"]
    assert waiting - ahead == pytest.approx(issued + (before + after) * BLOCKING_SECONDS, rel=0.1)


def test_heads_that_tensor_cores_cannot_read_are_slow() -> None:
    """BigScience's scan of 2022: 128 heads 108 wide took 154 s where 64 heads 216 wide took 107."""
    setup = _setup()
    even = _operation(setup, "attention.scores")
    chip = Chip(setup)
    batch, heads, queries, keys, width, value = even.shape
    odd = even._replace(shape=(batch, heads, queries, keys, width - 4, value - 4))
    assert operation_sums(setup, chip, odd)[1].matmul > 5 * operation_sums(setup, chip, even)[1].matmul


def test_passes_of_softmax_and_dropout_over_scores() -> None:
    """Scores of n elements in 2 bytes: softmax 4n, dropout 4n and a mask of n; backward 6n and 4n and the mask."""
    setup = _setup()
    softmax = _operation(setup, "attention.softmax")
    n = softmax.shape[0]
    assert moved_bytes(setup, softmax) == (9 * n, 11 * n)
    plain = softmax._replace(saved=softmax.saved[:1], bytes_written=softmax.saved[0].size_bytes)
    assert moved_bytes(setup, plain) == (4 * n, 6 * n)


def test_passes_of_the_optimizer_over_gradients() -> None:
    """Adam with a master copy: 24 bytes of states, 4 to write parameters from it twice over, gradients twice; a scaled
    loss in 2 bytes: widened (6), unscaled (8), read in 4 bytes. Without one parameters are read, too: seven accesses in
    all, and 20 of elementary operations, whose clipping is apart."""
    assert optimizer_traffic_bytes(1, 12, 4, 2, 4) == 24 + 8 + 4 + 2
    assert optimizer_traffic_bytes(1, 12, 2, 2, 4, 1) == 24 + 6 + 8 + 8 + 4 + 2
    assert optimizer_traffic_bytes(1, 8, 2, 2) == 16 + 4 + 4
    assert optimizer_traffic_bytes(1, 8, 4, 4, clip_passes=0) == 7 * 4
    assert optimizer_traffic_bytes(1, 8, 4, 4, clip_passes=3, passes=20 / 7) == pytest.approx((20 + 3) * 4)


def test_a_machine_that_notes_name_gives_the_network() -> None:
    cells = {"id": "r", "framework": "megatron-deepspeed", "gpu": "a100-sxm4-80gb", "n_gpus": "384", "tp": "4",
             "pp": "12", "model": "GPT", "family": "gpt", "layers": "72", "hidden": "14336", "heads": "64",
             "seq_len": "2048", "micro_batch": "2", "global_batch": "2048", "year": "2022",
             "precision": "fp16"}  # fmt: skip
    plain = setup_of(Run(cells, 2))
    named = setup_of(Run({**cells, "notes": "A100 80GB, 8/node (Jean Zay)"}, 2))
    homely = setup_of(Run({**cells, "source": "bigscience-workshop/bigscience train"}, 2))
    assert plain.cluster.name != "jean-zay-a100" == named.cluster.name == homely.cluster.name
    assert (plain.framework.name, named.framework.name) == ("megatron-deepspeed-2022",) * 2
    assert setup_of(Run({**cells, "year": "2021"}, 2)).framework.name == "megatron-deepspeed-2021"
    assert setup_of(Run({**cells, "year": "2023"}, 2)).framework.name == "megatron-deepspeed"


def _head_seconds(**options: Any) -> float:
    gpt2 = {"model": "gpt2-xl", "gpus": 1, "tp": 1, "framework": "huggingface", "precision": "pure-bf16"}
    setup = _setup(**{**gpt2, "seq": 1024, "attention": "flash", **options})
    head = build_stages(setup)[-1].head
    assert head is not None
    rows = [operation_sums(setup, Chip(setup), one) for one in head.operations if one.name == "head"]
    return float(sum(forward.matmul + backward.matmul for forward, backward in rows))


def test_odd_vocabularies_are_slow() -> None:
    """50,257 columns of two bytes start anywhere: kernels that load two at a time reach 0.4 of an A100's rate.
    Compilers fill them up, frameworks that pad have none, and systolic arrays do not care."""
    odd = _head_seconds(framework="torchtitan")
    assert odd == pytest.approx(_head_seconds(framework="torchtitan", compile=True) / 0.4, rel=1e-3)
    assert odd == pytest.approx(_head_seconds(framework="megatron-lm", precision="bf16") / 0.4, rel=0.01)
    plain = {"model": "gpt2-xl", "gpus": 1, "tp": 1, "seq": 1024, "attention": "flash", "framework": "huggingface"}
    narrow, wide, exact = (_setup(**plain, precision=name) for name in ("pure-bf16", "tf32", "fp32"))
    assert [alignment(narrow, words, 1600, 2, 1e12) for words in (50_304, 12_564, 6_282, 50_257)] == [1, 0.6, 0.5, 0.4]
    assert alignment(narrow, 1600, 50_257, 2, 1e12) == 0.4
    assert alignment(wide, 50_257, 1600, 4, 1e12) == 0.5 and alignment(wide, 50_260, 1600, 4, 1e12) == 1
    assert alignment(exact, 50_257, 1600, 4, 1e12) == 1


def test_an_odd_vocabulary_is_told() -> None:
    job = {"model": "gpt2-xl", "gpu": "a100", "gpus": 1, "seq": 1024}
    notes = distsim.step(framework="huggingface", **job).notes
    assert any("50,257 columns" in note and "padded to 50,264" in note for note in notes)
    assert not any("columns" in note for note in distsim.step(framework="megatron-core", **job).notes)
    job |= {"model": "bert-base", "framework": "huggingface", "seq": 512}
    assert any("30,522 columns" in note for note in distsim.step(**job).notes)
    job["model"] = "bert-base-BertForSequenceClassification"  # whose output is over two classes
    assert not any("columns" in note for note in distsim.step(**job).notes)


def test_one_tile_leaves_all_other_units_idle() -> None:
    assert matmul_share(64, 64, 64, 1, 50) == pytest.approx(2 * matmul_share(64, 64, 64, 1, 100))
