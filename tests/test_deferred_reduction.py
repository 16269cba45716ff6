"""Gradients that wait for the last micro-batch under FSDP: what is sent, what is held, and when notes say so."""

from __future__ import annotations

from typing import Any

import pytest

import distsim
from distsim import step
from distsim.engine.advice.changes import changes
from distsim.engine.advice.mend import mend
from distsim.engine.evidence import replay
from distsim.engine.jobs.exchange import exchange_of, gathers_once
from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.bounds import parse_bounds
from distsim.engine.layouts.report import Request
from distsim.engine.layouts.search import search
from distsim.engine.runs.setup import setup_of
from distsim.engine.steps.work import work_of
from distsim.engine.traffic import TrafficReport
from distsim.engine.traffic_compare import sync_cost
from distsim.errors import DistsimError
from distsim.interop.runs import Run, expert_kernels
from distsim.interop.runs import graphs as run_graphs
from distsim.report.comm import sync_lines
from distsim.report.style import Style
from distsim.specs.job import Job
from distsim.units import GIB
from tests.test_recipes import row

PARAMETERS = 8_030_261_248
"""Of Llama 3 8B."""
OPTIONS = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 16, "framework": "torchtitan", "seq": 4096}


def comm(**more: Any) -> TrafficReport:
    return distsim.comm(**{**OPTIONS, "global_batch": 64, **more})


def sent(report: TrafficReport, purpose: str) -> float:
    return sum(one.wire_bytes_per_rank for one in report.collectives if one.purpose == purpose)


def buffers(**more: Any) -> float:
    return float(distsim.memory(**{**OPTIONS, "global_batch": 64, **more}).stages[0].categories["buffers"])


@pytest.mark.parametrize(("zero", "gathers"), [(2, 33), (3, 260)])
def test_fsdp1_without_synchronisation_keeps_what_it_does_not_reshard(zero: int, gathers: int) -> None:
    """Recorded with torch 2.13: SHARD_GRAD_OP gathers once in a step, FULL_SHARD for each pass but the root's last."""
    job = {"model": "llama-3-8b", "framework": "fsdp", "gpu": "h100-sxm", "gpus": 8, "seq": 2048, "global_batch": 32}
    rows = distsim.comm(**job, zero=zero, no_sync=True).collectives
    assert sum(one.calls for one in rows if one.op == "all_gather") == gathers
    assert sum(one.calls for one in rows if one.op == "reduce_scatter") == 33


@pytest.mark.parametrize("framework", ["torchtitan", "deepspeed"])
def test_what_replicas_reduce_once_hides_beside_the_last_backward_alone(framework: str) -> None:
    """Without ZeRO the one all-reduce of a step had hidden beside every micro-batch's backward: 32 A100 at 25 Gb/s
    exposed half of what --no-sync, which sends the same, did."""
    job = {"model": "gpt2-xl", "gpu": "a100-sxm4-40gb", "gpus": 32, "seq": 1024, "micro_batch": 4, "zero": 0,
           "precision": "fp16", "framework": framework}  # fmt: skip
    one, several, put_off = (
        step(**job, global_batch=128 * m, **more) for m, more in ((1, {}), (4, {}), (4, {"no_sync": True}))
    )
    exposed = [one.breakdown["data_parallel"] for one in (one, several, put_off)]
    assert exposed[0] > 0 and exposed[1] == pytest.approx(exposed[2]) == pytest.approx(exposed[0], rel=0.05)


def test_layers_that_stay_gathered_are_gathered_and_reduced_once() -> None:
    each, once = comm(zero=2), comm(zero=2, no_sync=True)
    for purpose in ("parameters", "gradients"):
        assert sent(each, purpose) == pytest.approx(4 * sent(once, purpose))


@pytest.mark.parametrize("framework", ["llm-foundry", "torchtitan", "fsdp"])
def test_of_one_micro_batch_nothing_is_put_off(framework: str) -> None:
    options = {**OPTIONS, "framework": framework, "zero": 2}
    deferred, each = (distsim.step(**options, no_sync=one) for one in (True, False))
    assert (deferred.seconds, deferred.memory.peak) == (each.seconds, each.memory.peak)


def test_layers_that_are_released_are_gathered_for_each_micro_batch_all_the_same() -> None:
    each, once = comm(zero=3), comm(zero=3, no_sync=True)
    assert sent(each, "parameters") == sent(once, "parameters")
    assert sent(each, "gradients") == pytest.approx(4 * sent(once, "gradients"))


def test_replicas_of_shards_reduce_after_the_last_micro_batch() -> None:
    one, four = (comm(zero=3, zero_group=8, global_batch=batch) for batch in (16, 64))
    assert sent(four, "gradients") == pytest.approx(4 * sent(one, "gradients"))
    assert sent(four, "gradients of replicas") == sent(one, "gradients of replicas") > 0


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_that_wait_are_held_whole_in_the_type_they_are_reduced_in(zero: int) -> None:
    more = buffers(zero=zero, no_sync=True) - buffers(zero=zero)
    assert more == pytest.approx(4 * PARAMETERS, rel=0.01)
    assert buffers(zero=zero, no_sync=True, global_batch=16) == buffers(zero=zero, global_batch=16)


def test_shards_of_gradients_take_the_place_of_whole_ones_that_waited() -> None:
    """Two H200 hold 62.4 GiB of Llama 3 8B in bf16 under FSDP2, four 61.1, eight 88.5 of 14.8B (KempnerForge)."""
    fixed = {"framework": "kempnerforge", "recompute": "full", "zero": 3, "gpu": "h200-sxm"}
    for gpus, each, batch, measured in ((2, 2, 16, 62.4), (4, 4, 32, 61.1)):
        job = {"gpus": gpus, "micro_batch": each, "global_batch": batch, "compile": True, "seq": 4096}
        peak = distsim.memory("llama-3-8b", **fixed, **job).worst.counted("allocated") / GIB
        assert peak == pytest.approx(measured, rel=0.08)


def test_of_a_flat_tensor_as_backward_made_them_and_none_of_frozen_weights() -> None:
    whole = buffers(framework="fsdp", zero=3, no_sync=True) - buffers(framework="fsdp", zero=3)
    assert whole == pytest.approx(2 * PARAMETERS, rel=0.01)
    tuned = {"framework": "fsdp", "zero": 3, "lora_rank": 8}
    assert buffers(**tuned, no_sync=True) - buffers(**tuned) < GIB / 4


def test_memory_says_that_it_ignores_the_switch_only_where_it_does() -> None:
    said = "--no-sync affects traffic, not memory"
    assert said not in distsim.memory(**OPTIONS, global_batch=64, zero=3, no_sync=True).setup.notes
    assert said in distsim.memory(**OPTIONS, global_batch=64, zero=0, no_sync=True).setup.notes


@pytest.mark.parametrize(
    ("notes", "graphs"),
    [
        ("one CUDA graph for the whole step, varlen", "iteration"),
        ("EP overlap, whole-iteration CUDA graph, FP8", "iteration"),
        ("full-iteration CUDA graphs, batch 8", "iteration"),
        ("no full-iteration CUDA graph", "none"),
        ("CUDA graphs of router only; another run has a whole-iteration CUDA graph", "routers"),
        ("no CUDA graphs", "none"),
        ("varlen", None),
    ],
)
def test_graphs_of_whole_steps_in_notes(notes: str, graphs: str | None) -> None:
    assert run_graphs.graphs_of(row(notes=notes)) == graphs


def test_a_graph_of_the_whole_step_keeps_what_it_gathered() -> None:
    cells = {
        "source": "a table", "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "16", "seq_len": "4096", "tp": "1",
        "micro_batch": "1", "global_batch": "64", "precision": "bf16", "framework": "torchtitan", "year": "2026",
        "zero_stage": "2",
    }  # fmt: skip
    plain, graphed = (setup_of(Run({**cells, "notes": notes}, 1)) for notes in ("", "whole-step CUDA graph"))
    assert plain.kernels.graphs == "none" and graphed.kernels.graphs == "iteration"
    assert not gathers_once(plain, exchange_of(plain))
    assert gathers_once(graphed, exchange_of(graphed))


def test_fused_expert_kernels_of_torchtitan_in_notes() -> None:
    fused = expert_kernels.torchtitan_experts(row(notes="DistMoE fused dispatch, compute and combine"))
    assert fused["expert_overlap"] and fused["expert_index"] == "fused"
    assert expert_kernels.torchtitan_experts(row(notes="without DistMoE")) == {}


@pytest.mark.parametrize(
    ("notes", "once"),
    [
        ("shard_mode auto: the gradient all-reduce runs in every micro-batch", False),
        ("gradients reduced after each micro-batch; reduces after each micro-batch", False),
        ("shard_mode explicit: the gradient all-reduce runs once a step", True),
        ("all-reduce once per optimizer step", True),
        ("bf16 all-reduce", None),
        ("micro-steps accumulate gradients without synchronising", True),
        ("gradients are not synchronised until the last micro-batch", True),
        ("gradients reduced once after accumulation, in half precision", True),
        ("accumulation under model.no_sync()", True),
        ("set_requires_gradient_sync(False) but for the last", None),
        ("requires_gradient_sync=False", True),
        ("the loop does not use no_sync", False),
        ("no_sync is off", None),
        ("defer_fsdp_grad_sync: true", True),
        ("defer_fsdp_grad_sync is off", False),
        ("whether defer_fsdp_grad_sync is on is not told", None),
        ("gradients synchronise after each micro-step", False),
        ("whether gradients synchronise in each is not said", None),
    ],
)
def test_notes_tell_when_replicas_reduce(notes: str, once: bool | None) -> None:
    """MaxText's engine reduces 2.4 GB in 20 ms for each of eight micro-batches, or once (perf_parity of TPU7x)."""
    cells = {"model": "llama-3.2-1b", "gpu": "tpu-v6e", "n_gpus": "8", "seq_len": "1024", "micro_batch": "1",
             "global_batch": "64", "zero_stage": "0", "framework": "maxtext", "recompute": "none"}  # fmt: skip
    setup = setup_of(Run({**cells, "notes": notes}, 1))
    assert setup.job.no_sync is once
    assert bool(exchange_of(setup).no_sync) is (once is not False)


@pytest.mark.parametrize(("framework", "zero"), [("torchtitan", 2), ("torchtitan", 3), ("fsdp", 2)])
def test_each_micro_batch_hides_its_own_reduction(framework: str, zero: int) -> None:
    """Four times the micro-batches, each with a reduction: four times the exposed time, at any stage."""
    job: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 64, "seq": 2048, "framework": framework}
    exposed = {
        many: step(**job, zero=zero, micro_batch=1, global_batch=64 * many).breakdown["data_parallel"]
        for many in (4, 16)
    }
    assert exposed[16] == pytest.approx(4 * exposed[4], rel=0.1)


def test_what_is_put_off_is_reduced_once() -> None:
    """Sixteen micro-batches behind one reduction: only the last one's backward hides it."""
    job: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm", "gpus": 64, "seq": 2048, "framework": "fsdp"}
    for zero in (2, 3):
        work = work_of(resolve(Job(**job, zero=zero, micro_batch=1, global_batch=1024, no_sync=True)))
        assert work.stages[0].traffic["reduce_each"] == 0 < work.stages[0].traffic["reduce"]


@pytest.mark.parametrize(("framework", "zero"), [("deepspeed", 2), ("deepspeed", 3), ("huggingface", 3), ("nemo", 2)])
def test_software_that_cannot_put_off_sharded_gradients_says_so(framework: str, zero: int) -> None:
    """DeepSpeed's no_sync asserts that gradients are not partitioned; Megatron FSDP's reduces them all the same."""
    for ask in (distsim.comm, distsim.step, distsim.memory):
        with pytest.raises(distsim.DistsimError, match=f"defer the gradient reduction with ZeRO {zero}") as told:
            ask(**{**OPTIONS, "framework": framework, "zero": zero, "no_sync": True, "global_batch": 64})
        assert "--zero 1" in str(told.value) and "source:" in str(told.value)
    assert comm(framework=framework, zero=1, no_sync=True).exchange.no_sync


def test_nobody_is_advised_to_put_off_what_cannot_be() -> None:
    assert sync_cost(comm(framework="deepspeed", zero=2)) is None
    assert sync_cost(comm(framework="deepspeed", zero=1)) is not None
    report = comm(framework="fsdp", zero=3)
    line = " ".join(sync_lines(sync_cost(report), report, Style(100, 0, True)))  # type: ignore[arg-type]
    assert "--no-sync saves" in line and "keeps them unsharded" in line


def test_a_search_leaves_out_stages_whose_gradients_cannot_wait() -> None:
    job = Job(model="gpt2", gpu="h100-sxm", global_batch=64, framework="deepspeed")
    bounds = parse_bounds({"micro_batch": "1", "zero": "2,3", "recompute": "none"}, [])
    assert search(Request(job, (8,), bounds, top=1)).best
    with pytest.raises(DistsimError, match="the other constraints would allow: 0, 1"):
        search(Request(job.model_copy(update={"no_sync": True}), (8,), bounds, top=1))


def test_whole_gradients_are_memory_where_a_switch_keeps_them() -> None:
    """Under XLA's ZeRO 3 gradients that wait for the last micro-batch are whole on each rank."""
    job = {"framework": "maxtext", "zero": 3, "global_batch": 64}
    waits, shared = (distsim.memory(**{**OPTIONS, **job}, no_sync=on).stages[0].categories for on in (True, None))
    assert waits["gradients"] == pytest.approx(16 * shared["gradients"], rel=0.01)
    alone = distsim.memory(**{**OPTIONS, **job, "global_batch": 16}, no_sync=True).stages[0].categories
    assert alone["gradients"] == shared["gradients"]


def test_a_row_whose_software_cannot_put_off_is_replayed_without() -> None:
    cells = {"source": "a table", "model": "llama-3-8b", "gpu": "h100-sxm", "n_gpus": "16", "seq_len": "4096",
             "micro_batch": "1", "global_batch": "64", "framework": "deepspeed", "year": "2025",
             "notes": "accumulation under model.no_sync()"}  # fmt: skip
    assert setup_of(Run({**cells, "zero_stage": "2"}, 1)).job.no_sync is None
    assert setup_of(Run({**cells, "zero_stage": "1"}, 1)).job.no_sync


@pytest.mark.parametrize(
    "options",
    [{"framework": "llm-foundry", "gpus": 1}, {"framework": "kempnerforge", "gpus": 4, "zero_group": 1},
     {"framework": "torchtitan", "gpus": 1, "no_sync": True}],
)  # fmt: skip
def test_gradients_that_nobody_shares_do_not_vanish_when_they_wait(options: dict[str, Any]) -> None:
    """A group of one has no shards that only come to be with the reduction: its gradients are there all along."""
    asked = {**OPTIONS, "zero": 3, **options}
    once, twice = (distsim.memory(**{**asked, "global_batch": options["gpus"] * m}).stages[0] for m in (1, 2))
    assert twice.peak >= once.peak
    assert twice.categories == once.categories


SEVENTY = {
    "source": "a report", "model": "llama-3.1-70b", "gpu": "h100-sxm", "n_gpus": "64", "cp": "2", "seq_len": "8192",
    "micro_batch": "1", "global_batch": "128", "framework": "nemo-automodel", "recompute": "full", "year": "2026",
    "step_time_s": "20", "notes": "",
}  # fmt: skip
EACH = "assumed reduced in each"


def test_a_run_that_whole_gradients_would_not_have_fitted_reduced_in_each_micro_batch() -> None:
    found = replay(Run(SEVENTY, 1), strange=True)
    assert found.setup is not None and found.setup.job.no_sync is False and EACH in found.assumed
    assert found.predicted_peak is not None and found.predicted_peak < found.setup.accelerator.capacity


@pytest.mark.parametrize(
    ("cells", "stated"),
    [({"notes": "gradients reduced once a step"}, True), ({"notes": "defer_fsdp_grad_sync: false"}, False),
     ({"model": "llama-3.1-8b"}, None), ({"global_batch": "32"}, None), ({"framework": "torchtitan"}, None),
     ({"model": "llama-3.1-8b", "recompute": "none", "micro_batch": "16", "global_batch": "2048"}, None),
     ({"model": "llama-3.1-8b", "recompute": "none", "micro_batch": "2", "global_batch": "128"}, None),  # activations
     ({"micro_batch": "8", "global_batch": "512"}, None)],
)  # fmt: skip
def test_what_is_stated_fits_or_would_not_fit_either_way_stays(cells: dict[str, str], stated: bool | None) -> None:
    found = replay(Run({**SEVENTY, **cells}, 1), strange=True)
    assert found.setup is not None and found.setup.job.no_sync is stated and EACH not in found.assumed


@pytest.mark.parametrize(
    ("framework", "options", "offered"),
    [("nemo-automodel", {}, True), ("nemo-automodel", {"no_sync": True}, True), ("torchtitan", {}, False),
     ("nemo-automodel", {"no_sync": False}, False), ("nemo-automodel", {"pp": 8}, False),
     ("nemo-automodel", {"global_batch": 32}, False)],
)  # fmt: skip
def test_who_does_not_fit_for_gradients_that_wait_unasked_is_told(
    framework: str, options: dict[str, Any], offered: bool
) -> None:
    job = {"model": "llama-3.1-70b", "gpu": "h100-sxm", "gpus": 64, "cp": 2, "seq": 8192, "global_batch": 128}
    report = distsim.memory(**{**job, "framework": framework, "recompute": "full", **options})
    told = [one.words for one in changes(report.setup) if one.shown == {"no_sync": False}]
    assert told == ["gradients reduced in every micro-batch"] * offered
    if offered:
        assert "--sync-every-micro-batch" in [one.flags for one in mend(report).fitting]
