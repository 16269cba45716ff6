"""Published laws of what crosses the links, hand-made counts, and arrays against plain numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

import distsim
from distsim import catalog
from distsim.engine.exchanges.all_flows import network_of
from distsim.engine.exchanges.offloading import host_rate
from distsim.engine.jobs.exchange import exchange_of
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.traffic import Row, TrafficReport, comm_of, stage_rows
from distsim.engine.traffic_compare import sync_cost, zero_traffic
from distsim.errors import DistsimError
from distsim.formulas.traffic import powersgd_elements, quantised_bytes, zero_volume_parameters
from distsim.specs.framework import Buffers
from distsim.specs.job import Job

LLAMA_7B = 6_738_415_616


def comm(model: str = "llama-7b", **options: Any) -> TrafficReport:
    return distsim.comm(model=model, **options)


def rows(report: TrafficReport, *purposes: str) -> list[Row]:
    found = [row for row in report.collectives if row.purpose in purposes]
    assert found, f"none of {purposes} in {[row.purpose for row in report.collectives]}"
    return found


def sent(report: TrafficReport, *purposes: str) -> float:
    return sum(row.wire_bytes_per_rank for row in rows(report, *purposes))


def textbook(**options: Any) -> TrafficReport:
    """ZeRO as in its paper: every layer and the root gathered again in backward."""
    setup = resolve(Job(model="llama-7b", **options))
    framework = setup.framework.model_copy(update={"buffers": Buffers(keep_last_unit=False)})
    return comm_of(replace(setup, framework=framework))


# Data parallelism and ZeRO


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_ring_all_reduce_law(ranks: int) -> None:
    assert sent(comm(gpus=ranks), "gradients") == pytest.approx(2 * (ranks - 1) / ranks * 2 * LLAMA_7B)


@pytest.mark.parametrize(("zero", "ratio"), [(1, 1.0), (2, 1.0), (3, 1.5)])
def test_zero_sends_once_once_and_one_and_a_half(zero: int, ratio: float) -> None:
    whole = sent(textbook(gpus=16), "gradients")
    assert sent(textbook(gpus=16, zero=zero), "gradients", "parameters") == pytest.approx(ratio * whole)
    assert zero_volume_parameters(zero) / zero_volume_parameters(0) == ratio


def test_comparison_shows_the_law_and_this_job() -> None:
    found = zero_traffic(textbook(gpus=16))
    assert [one.law / found[0].law for one in found] == [1, 1, 1, 1.5]
    assert [one.elements / found[0].elements for one in found] == pytest.approx([1, 1, 1, 1.5])
    # torch gathers the root unit once, and its ZeRO 1 reduces all to all and then broadcasts
    torch = zero_traffic(comm(gpus=16, framework="torch-ddp"))
    assert torch[1].elements / torch[0].elements == pytest.approx(1.5, rel=0.01)


def test_accumulation_reduces_once_unless_forgotten() -> None:
    once, each = comm(gpus=8, global_batch=32), comm(gpus=8, global_batch=32, no_sync=False)
    assert sent(each, "gradients") == pytest.approx(4 * sent(once, "gradients"))
    cost = sync_cost(once)
    assert cost is not None and cost == sync_cost(each)
    assert cost.each_bytes == pytest.approx(4 * cost.once_bytes)
    assert sync_cost(comm(gpus=8)) is None


def test_replicas_of_shards_keep_gathers_inside_the_node() -> None:
    whole, hybrid = comm(gpus=64, zero=3), comm(gpus=64, zero=3, zero_group=8)
    inside = [row for row in hybrid.collectives if row.purpose == "parameters"]
    assert all(row.level_bytes[0] == 0 for row in inside)
    crossing = sum(row.level_bytes[0] for row in hybrid.collectives)
    assert crossing == pytest.approx(2 * 7 / 8 * 2 * LLAMA_7B / 8, rel=0.01)
    assert crossing < sum(row.level_bytes[0] for row in whole.collectives)
    replicas = rows(hybrid, "gradients of replicas")
    assert sum(row.bytes_per_call * row.calls for row in replicas) == pytest.approx(2 * LLAMA_7B / 8)


def test_zero_plus_plus_sends_a_quarter_between_nodes() -> None:
    """3 M becomes 0.75 M (arXiv:2306.10209, table 1); the scales of quantised blocks come on top."""
    plain = textbook(gpus=64, zero=3)
    setup = plain.setup
    better = comm_of(replace(setup, job=setup.job.model_copy(update={"zeropp": "qwz,hpz,qgz"})))
    before, after = (
        sum(row.level_bytes[0] for row in one.collectives if row.phase != "step") for one in (plain, better)
    )
    assert after / before == pytest.approx(0.25, rel=0.05)  # eight nodes: the exchange leaves out a node's own eighth
    backward = [row for row in better.collectives if row.purpose == "parameters" and row.phase == "backward"]
    assert sum(row.level_bytes[0] for row in backward) == 0
    per_node = {part: sum(r.level_bytes[0] for r in comm(gpus=64, zero=3, zeropp=part).collectives)
                for part in ("qwz", "hpz", "qgz")}  # fmt: skip
    assert all(after < one < before for one in per_node.values())


def test_distributed_optimizer_gathers_after_the_step() -> None:
    report = comm(gpus=8, zero=1, precision="bf16-fp32-grads")
    reduced, gathered = rows(report, "gradients"), rows(report, "parameters")
    assert {(row.op, row.dtype, row.phase) for row in reduced} == {("reduce_scatter", "fp32", "backward")}
    assert {(row.op, row.dtype, row.phase) for row in gathered} == {("all_gather", "bf16", "step")}
    assert sent(report, "gradients") == pytest.approx(2 * sent(report, "parameters"))
    (row,) = reduced  # 32 layers of three buckets that 40 million parameters close, embedding and head
    assert row.calls == 3 * 32 + 2 and row.calls * row.bytes_per_call == pytest.approx(4 * LLAMA_7B)


def test_experts_are_reduced_over_their_own_ranks() -> None:
    report = comm("mixtral-8x7b", gpus=16, ep=8)
    sizes = {2: 0.0, 16: 0.0}
    for row in rows(report, "gradients"):
        sizes[row.group_size] += row.bytes_per_call * row.calls
    experts = 32 * 3 * 4096 * 14336  # one expert of each layer on a rank
    assert sizes[2] == pytest.approx(2 * experts)


# Variants


def test_compression() -> None:
    plain = sent(comm("gpt2", gpus=16), "gradients")
    signs = sent(comm("gpt2", gpus=16, compress="1bit"), "gradient signs")
    assert signs / plain == pytest.approx(1 / 16)
    rank4, rank8 = (comm("gpt2", gpus=16, compress=f"powersgd-r{rank}") for rank in (4, 8))
    assert sent(rank8, "low-rank factors") == pytest.approx(2 * sent(rank4, "low-rank factors"))
    per_layer = [(768, 2304), (768, 768), (768, 3072), (3072, 768)]
    factors = 4 * (12 * sum(a + b for a, b in per_layer) + rank4.setup.vocab_padded + 768 + 1024 + 768)
    assert sent(rank4, "low-rank factors") == pytest.approx(2 * 15 / 16 * 2 * factors)


def test_casts_halve_what_is_reduced_and_errors_of_compression_are_kept() -> None:
    """torch's fp16_compress_hook and bf16_compress_hook; the error feedback of powerSGD_hook (a tensor per bucket) and
    of 1-bit Adam (in fp32, and of a rank's share again)."""
    ddp: dict[str, Any] = {"model": "gpt2", "gpus": 8, "framework": "torch-ddp", "precision": "amp-bf16", "seq": 512}
    plain, narrow = comm(**ddp), comm(**ddp, compress="fp16")
    assert sent(narrow, "gradients") == sent(plain, "gradients") / 2
    assert [row.calls for row in rows(narrow, "gradients")] == [row.calls for row in rows(plain, "gradients")]
    none, cast, low, one = (distsim.memory(**ddp, compress=kind).stages[0].categories["buffers"]
                            for kind in (None, "bf16", "powersgd-r4", "1bit"))  # fmt: skip
    gradients = distsim.memory(**ddp).stages[0].categories["gradients"]
    assert cast == none and low - none == gradients and one - none == pytest.approx(gradients * 9 / 8)
    notes = [distsim.memory(**ddp, compress=kind).setup.notes for kind in ("bf16", "powersgd-r4")]
    assert ["--compress affects traffic, not memory" in " ".join(told) for told in notes] == [True, False]


def test_factors_of_experts() -> None:
    """Each expert's matrices have their own, over the ranks that hold the same experts; one rank alone sends none."""
    options: dict[str, Any] = {"gpu": "h100-sxm", "ep": 8, "seq": 4096}
    alone, shared = (comm("mixtral-8x7b", gpus=gpus, compress="powersgd-r4", **options) for gpus in (8, 16))
    assert {row.group_size for row in rows(alone, "low-rank factors")} == {8}
    sizes = {row.group_size: row.calls * row.bytes_per_call for row in rows(shared, "low-rank factors")}
    expert = (4096 + 2 * 14336) + (14336 + 4096)  # gate and up in one product
    assert sizes[2] == pytest.approx(2 * 4 * 32 * expert)
    layer = (4096 + 6144) + (4096 + 4096) + (4096 + 8)  # queries, keys and values in one product; the router
    assert sizes[16] == pytest.approx(2 * 4 * (32 * layer + 2 * (32000 + 4096)))
    whole = comm("mixtral-8x7b", gpus=8, **options)
    assert sent(alone, "low-rank factors") < 0.01 * sent(whole, "gradients")


@pytest.mark.parametrize(("ep", "share"), [(1, 1 + 1 / 8), (2, (1 + 1 / 4) / 2), (8, 0.0)])
def test_what_is_not_yet_sent_is_of_what_is_sent(ep: int, share: float) -> None:
    """Experts that expert parallelism gives to one rank alone are not reduced, and leave nothing to send; those of
    four ranks have a fourth once more."""
    job = {"gpu": "h100-sxm", "gpus": 8, "ep": ep, "seq": 1024, "framework": "deepspeed", "precision": "fp16"}
    plain, signs = (distsim.memory(model="mixtral-8x7b", **job, compress=kind) for kind in (None, "1bit"))
    more = signs.stages[0].categories["buffers"] - plain.stages[0].categories["buffers"]
    experts = 32 * 8 * 3 * 4096 * 14336
    dense = distsim.load_model("mixtral-8x7b").parameters - experts
    assert more == pytest.approx(4 * (dense * (1 + 1 / 8) + experts * share))


def test_factors_are_sent_as_often_as_gradients() -> None:
    once, each = (comm("gpt2", gpus=8, global_batch=32, compress="powersgd-r4", no_sync=put_off)
                  for put_off in (True, False))  # fmt: skip
    assert sent(each, "low-rank factors") == pytest.approx(4 * sent(once, "low-rank factors"))


@pytest.mark.parametrize("framework", ["torchtitan", "torch-ddp"])
@pytest.mark.parametrize(
    ("options", "purpose"),
    [({"compress": "powersgd-r4"}, "low-rank factors"), ({"sync": "local-sgd", "sync_every": 10}, "replicas averaged")],
)
def test_replicas_that_reduce_once_send_as_much_whatever_the_micro_batches(
    framework: str, options: dict[str, Any], purpose: str
) -> None:
    """torchtitan reduces whole gradients after the last micro-batch (HSDP, DDP) though it shards those of each; DDP
    puts all off."""
    job = {"gpu": "h100-sxm", "gpus": 4, "zero": 0, "seq": 1024, "framework": framework, **options}
    one, four = (sent(comm("llama-3.2-1b", **job, global_batch=batch), purpose) for batch in (4, 16))
    assert four == pytest.approx(one)


def test_local_sgd_has_no_gradients_to_put_off() -> None:
    job = {"gpus": 4, "global_batch": 16, "sync": "local-sgd", "no_sync": False}
    told = "--sync-every-micro-batch has no effect with --sync local-sgd: replicas reduce no gradients"
    assert told in comm("gpt2", **job).notes
    assert not any("has no effect" in note for note in comm("gpt2", **job, zero=1, zero_group=2).notes)


def test_parameter_servers() -> None:
    """Sharded over the workers they move what a ring moves; a central one is as slow as all workers together."""
    ring = sent(comm("gpt2", gpus=8), "gradients")
    shared = comm("gpt2", gpus=8, sync="parameter-server")
    assert sent(shared, "gradients pushed", "parameters pulled") == pytest.approx(ring)
    seconds = [comm("gpt2", gpus=16, sync="parameter-server", servers=n).seconds for n in (1, 2, 16)]
    assert seconds[0] / seconds[1] == pytest.approx(2, rel=0.01)
    assert seconds[1] / seconds[2] == pytest.approx(8, rel=0.02)


@pytest.mark.parametrize(
    ("model", "layout"), [("llama-7b", {"tp": 8}), ("llama-7b", {"pp": 8}), ("mixtral-8x7b", {"ep": 8, "seq": 4096})]
)
def test_servers_and_slow_links_carry_every_shard(model: str, layout: dict[str, Any]) -> None:
    """64 workers push whatever they hold to one server; one link joins a replica's ranks with the others."""
    options: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 64, **layout}
    served = comm(model, sync="parameter-server", servers=1, **options)
    held = [sum(p.elements * n for p, n in stage.held()) for stage in build_stages(served.setup)]
    pushed = 2 * 64 / len(held) * sum(held)
    for found in served.stages:
        seconds = sum(row.seconds for row in found if row.purpose == "gradients pushed")
        assert seconds == pytest.approx(pushed / 50e9, rel=0.01)
    slow = comm(model, sync="local-sgd", sync_every=1, sync_gbps=10, **options)
    for found in slow.stages:
        averaged = [row for row in found if row.purpose == "replicas averaged"]
        rings = [2 * (row.group_size - 1) / row.group_size * row.bytes_per_call * 64 / row.group_size
                 for row in averaged]  # fmt: skip
        own = sum(p.elements * n for p, n in build_stages(slow.setup)[slow.stages.index(found)].held())
        seconds = sum(row.seconds for row in averaged)
        assert seconds == pytest.approx(sum(rings) / len(held) * sum(held) / own / 1.25e9)


def test_local_sgd_and_diloco() -> None:
    plain = sent(comm("gpt2", gpus=16), "gradients")
    rare = comm("gpt2", gpus=16, sync="local-sgd", sync_every=500)
    assert sent(rare, "replicas averaged") == pytest.approx(plain / 500)
    slow = comm("gpt2", gpus=16, zero=3, zero_group=8, sync="local-sgd", sync_every=100, sync_gbps=1)
    (row,) = rows(slow, "replicas averaged")
    assert row.group_size == 2 and row.link == "slow link"
    parameters = 124_439_808 + (slow.setup.vocab_padded - 50257) * 768
    assert row.wire_bytes_per_rank == pytest.approx(2 * parameters / 8 / 100)  # 2 bytes, a ring of two, one eighth
    assert row.seconds == pytest.approx(2 * parameters / 125e6 / 100)  # eight ranks of a replica share its link


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_replicas_of_two_copies_average_both(zero: int) -> None:
    """Under DualPipe a rank holds two stages, each sharded over the two ranks of its group, and averages both."""
    report = comm("llama-3.2-1b", gpus=16, pp=4, schedule="dualpipe", zero=zero, zero_group=2, seq=1024,
                  global_batch=64, sync="local-sgd", sync_every=10)  # fmt: skip
    for stage, found in zip(build_stages(report.setup), report.stages, strict=True):
        averaged = sum(row.calls * row.bytes_per_call for row in found if row.purpose == "replicas averaged")
        assert averaged == pytest.approx(sum(p.elements * count for p, count in stage.held()) / 2 * 2, rel=1e-3)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_narrow_embeddings_exchange_as_many_numbers_as_they_are_wide(sequence_parallel: bool) -> None:
    """OPT 350M looks up and tells words 512 wide, which its layers' 1,024 are made of, and made to."""
    found = comm("opt-350m", gpus=8, tp=2, seq=1024, sequence_parallel=sequence_parallel)
    told = rows(found, "tensor parallel embedding", "tensor parallel head")
    assert {row.bytes_per_call for row in told} == {1024 * 512 * 2}


def test_a_stated_link_takes_as_long_as_it_states() -> None:
    """No fitted factor of data parallel exchanges scales it; alike runs correct it as they correct the whole step."""
    job = {"gpu": "h100-sxm", "gpus": 16, "zero": 3, "zero_group": 8, "sync": "local-sgd", "sync_every": 10}
    slow, fast = (distsim.step("llama-7b", **job, sync_gbps=gbps) for gbps in (1, 2))
    assert abs(slow.timing.data_factor - 1) > 0.05
    whole = 2 * 6_738_415_616 / 125e6 / 10  # a ring of two sends all 16-bit gradients once in ten steps
    told = (slow.breakdown["data_parallel"] - fast.breakdown["data_parallel"]) / math.exp(slow.correction.logarithm)
    assert told == pytest.approx(whole / 2, rel=1e-6)
    near, far = (distsim.step("llama-7b", **job, sync_gbps=gbps).seconds for gbps in (1e5, 1e6))
    assert near == pytest.approx(far, rel=1e-3)


def test_offload_crosses_the_host_link() -> None:
    report = distsim.comm(Job(model="llama-7b", gpus=8, zero=2, offload="optimizer"))
    (down,), (up,) = rows(report, "gradients to host"), rows(report, "parameters from host")
    assert down.bytes_per_call == up.bytes_per_call == pytest.approx(2 * LLAMA_7B / 8)
    assert down.link.startswith("pcie") and down.seconds > 0 and down.level_bytes == (0,)
    for kind, zero in (
        ("optimizer", 1),
        ("parameters", 3),
    ):  # experts have fewer ranks to share them, and less to share
        jobs = [{"gpu": "h100-sxm", "gpus": 64, "ep": ep, "zero": zero, "seq": 4096, "offload": kind} for ep in (1, 8)]
        together, apart = (rows(comm("mixtral-8x7b", **job), "parameters from host")[0] for job in jobs)
        assert together.bytes_per_call == apart.bytes_per_call == pytest.approx(2 * 46_702_792_704 / 64)
    piped = {"gpus": 8, "pp": 4, "global_batch": 32, "zero": 1, "offload": "optimizer"}
    one, both = (rows(comm(**piped, schedule=name), "gradients to host")[0] for name in ("1f1b", "dualpipe"))
    assert both.bytes_per_call == pytest.approx(2 * one.bytes_per_call, rel=0.01)  # a second copy of the weights
    chip = Job(model="llama-7b", gpu="gh200-96gb", gpus=1, recompute="full", seq=2048, offload="activations")
    kept = distsim.comm(chip)
    (out,), (back,) = rows(kept, "activations to host"), rows(kept, "activations from host")
    assert out.bytes_per_call == back.bytes_per_call == 32 * 2048 * 4096 * 2  # one input per layer
    assert out.link.startswith("c2c") and out.seconds < out.bytes_per_call / 100e9


def test_gradients_go_to_the_host_as_often_as_the_framework_sends_them() -> None:
    """Megatron sums on the GPU; FSDP sends each micro-batch's shard; DeepSpeed fetches the sum to add to it, under
    ZeRO 3 that of the first too, and sends what is updated in fp32. What is updated there stays there where parameters
    live there."""

    def calls(framework: str, zero: int) -> tuple[int, int]:
        moved = "optimizer,parameters" if framework == "fsdp" else "optimizer"  # which torch moves together
        report = comm(framework=framework, zero=zero, offload=moved, **job)
        assert len(rows(report, "parameters from host")) == len(moved.split(","))
        found = {row.purpose: row.calls for row in report.collectives}
        return found.get("gradients to host", 0), found.get("gradients from host", 0)

    job = {"gpus": 8, "global_batch": 32}
    assert calls("megatron-core", 2) == (1, 0) and calls("fsdp", 3) == (4, 0)
    assert [calls("deepspeed", zero) for zero in (1, 2, 3)] == [(0, 0), (4, 3), (4, 4)]
    job["global_batch"] = 8
    assert [calls("deepspeed", zero) for zero in (1, 2, 3)] == [(0, 0), (0, 0), (1, 1)]
    for zero in (1, 2, 3):
        (row,) = rows(comm(framework="deepspeed", zero=zero, offload="optimizer", **job), "fp32 gradients to host")
        assert (row.calls, row.dtype, 8 * row.bytes_per_call) == (1, "fp32", pytest.approx(4 * 6738415616, rel=1e-3))
    both = comm(framework="deepspeed", zero=3, offload="optimizer,parameters", **job)
    assert {row.phase for row in rows(both, "parameters from host")} == {"forward", "backward"}


def test_accelerators_behind_one_switch_share_its_link_to_the_host() -> None:
    """ZeRO-Infinity (arXiv:2104.07857): of 12 GB/s a V100 of a DGX-2 is left 3 when all sixteen copy."""

    def seconds(cluster: str, gpus: int) -> float:
        (row,) = rows(comm("gpt2", cluster=cluster, gpus=gpus, zero=1, offload="optimizer"), "gradients to host")
        return float(row.bytes_per_call / row.seconds)

    assert seconds("dgx-2", 16) == pytest.approx(3e9)
    assert seconds("dgx-2", 1) == pytest.approx(12e9)
    assert seconds("dgx-a100-80gb", 8) == pytest.approx(13e9)
    assert seconds("perlmutter", 4) == pytest.approx(26e9)


# Model parallelism


def test_sequence_parallelism_costs_what_tensor_parallelism_costs() -> None:
    """Korthikanti et al. 2022, section 4.2.2; without the input gathered again in backward, which is overlapped."""
    setup = resolve(Job(model="llama-7b", gpus=8, tp=8))
    kernels = setup.kernels.model_copy(update={"regather_input": False})
    with_sp = comm_of(replace(setup, kernels=kernels))
    without = comm(gpus=8, tp=8, sequence_parallel=False)
    purposes = ("tensor parallel layers", "tensor parallel embedding", "tensor parallel head")
    # an embedding's backward needs no exchange without sequence parallelism
    saved = sent(without, "tensor parallel embedding") / 2
    assert sent(with_sp, *purposes) == pytest.approx(sent(without, *purposes))
    assert saved == pytest.approx(sent(with_sp, "tensor parallel embedding") / 2)


def test_megatron_layer_by_hand() -> None:
    """Two all-reduces of s b h forward and two backward per layer (Shoeybi et al. 2019, figure 4)."""
    report = comm(gpus=4, tp=4, sequence_parallel=False, seq=2048, micro_batch=2)
    layers = rows(report, "tensor parallel layers")
    assert {(row.op, row.phase, row.calls, row.bytes_per_call) for row in layers} == {
        ("all_reduce", "forward", 64, 2 * 2048 * 4096 * 2), ("all_reduce", "backward", 64, 2 * 2048 * 4096 * 2),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "framework", "forward", "backward"),
    [("gpt-j-6b", "maxtext", 28, 28), ("gpt-neox-20b", "megatron-lm", 44, 88), ("gpt-neox-20b", "huggingface", 88, 88)],
)
def test_branches_of_one_residual_are_reduced_once(model: str, framework: str, forward: int, backward: int) -> None:
    """Black et al. 2022 (arXiv:2204.06745), section 2: one all-reduce where two branches are added first. Gradients of
    two norms (GPT-NeoX) are still two, and so is all of a plan that names modules one by one."""
    report = comm(model=model, gpu="h100-sxm", gpus=4, tp=4, sequence_parallel=False, framework=framework, zero=0)
    calls = {row.phase: row.calls for row in rows(report, "tensor parallel layers")}
    assert calls == {"forward": forward, "backward": backward}


def test_branches_of_one_norm_gather_its_output_once() -> None:
    report = comm(model="phi-2", gpus=8, tp=4, cp=2)
    calls = {(row.op, row.phase): row.calls for row in rows(report, "tensor parallel layers") if row.phase == "forward"}
    assert calls == {("all_gather", "forward"): 32, ("reduce_scatter", "forward"): 32}
    assert rows(report, "context parallel")  # nothing of other groups is dropped


def test_recomputation_repeats_what_forward_exchanges() -> None:
    plain, full = (comm(gpus=8, tp=8, recompute=how) for how in ("none", "full"))
    again = sent(full, "tensor parallel layers, recomputed")
    assert again == pytest.approx(
        sum(r.wire_bytes_per_rank for r in rows(plain, "tensor parallel layers") if r.phase == "forward")
    )
    ring = comm(gpus=8, cp=8, recompute="selective")
    assert sent(ring, "context parallel, recomputed") == pytest.approx(sent(ring, "context parallel") / 3)


def test_grids_against_counted_messages() -> None:
    """Every broadcast of SUMMA counted message by message on a 4 x 4 grid, for one product."""
    side, ranks = 4, 16
    report = comm(gpus=16, tp=16, tp_mode="2d", seq=2048)
    found = [row for row in rows(report, "tensor parallel layers") if row.phase == "forward"]
    blocks = [2048 * 4096 * 2 / ranks, 3 * 4096 * 4096 * 2 / ranks]  # queries, keys and values in one product
    messages = 0.0
    for _step in range(side):
        for _line in range(side):
            messages += (side - 1) * sum(blocks)
    for block in blocks:
        assert any(row.bytes_per_call == block for row in found)
    (weight,) = [row for row in found if row.bytes_per_call == blocks[1]]
    assert weight.calls == 32 * side and weight.group_size == side
    assert weight.wire_bytes_per_rank * ranks / 32 == pytest.approx(messages * blocks[1] / sum(blocks))


def test_one_square_of_two_and_a_half_dimensions_is_two_dimensions() -> None:
    flat = comm(gpus=16, tp=16, tp_mode="2d").to_dict()["collectives"]
    assert comm(gpus=16, tp=16, tp_mode="2.5d", tp_depth=1).to_dict()["collectives"] == flat
    deep = comm(gpus=16, tp=16, tp_mode="2.5d", tp_depth=4)
    # two by two squares, four of them: weight gradients are added up over the four
    summed = [row for row in rows(deep, "tensor parallel layers") if row.op == "all_reduce"]
    assert {row.group_size for row in summed} == {4}
    weights = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008) + deep.setup.vocab_padded * 4096
    assert sum(row.bytes_per_call * row.calls for row in summed) == pytest.approx(2 * weights / 4)


def test_cube_by_hand() -> None:
    """Input and weight gathered along one side each, product reduced along the third (arXiv:2105.14450, section 3)."""
    cube = comm(gpus=8, tp=8, tp_mode="3d", seq=1024)
    shapes = [(4096, 3 * 4096), (4096, 4096), (4096, 2 * 11008), (11008, 4096)]
    volume = 32 * sum(1024 * a + a * b + 1024 * b for a, b in shapes)
    vocab = cube.setup.vocab_padded
    volume += 1024 * 4096 + 4096 * vocab + 1024 * vocab
    forward = [row for row in rows(cube, "tensor parallel layers") if row.phase == "forward"]
    assert sum(row.wire_bytes_per_rank for row in forward) == pytest.approx(2 * volume / 4 / 2)
    whole = sum(row.wire_bytes_per_rank for row in rows(cube, "tensor parallel layers"))
    assert whole == pytest.approx(3 * 2 * volume / 4 / 2)


def test_context_parallel_modes() -> None:
    tokens, width, cp = 8192 // 4, 4096, 4
    ring = comm(gpus=4, cp=cp, seq=8192)
    forward = [row for row in rows(ring, "context parallel") if row.phase == "forward"]
    assert [(row.op, row.calls, row.bytes_per_call) for row in forward] == [
        ("send_recv", 3 * 32, 2 * tokens * width * 2)
    ]
    gathered = comm(gpus=4, cp=cp, seq=8192, cp_mode="all_gather")
    gathers = [row for row in rows(gathered, "context parallel") if row.phase == "forward"]
    assert sum(r.wire_bytes_per_rank for r in gathers) == pytest.approx(sum(r.wire_bytes_per_rank for r in forward))
    ulysses = comm(gpus=4, cp=cp, seq=8192, cp_mode="all_to_all")
    (exchanged,) = [row for row in rows(ulysses, "context parallel") if row.phase == "forward"]
    assert exchanged.calls == 4 * 32  # queries, keys, values, output: 4 N h / P (Jacobs et al. 2023, section 3.2)
    assert exchanged.wire_bytes_per_rank == pytest.approx(32 * 4 * tokens * width * 2 * 3 / 4)


def test_grouped_keys_make_the_ring_cheaper() -> None:
    wide, grouped = comm("llama-2-7b", gpus=4, cp=4, seq=4096), comm("llama-3-8b", gpus=4, cp=4, seq=4096)
    assert sent(wide, "context parallel") == pytest.approx(4 * sent(grouped, "context parallel"))


def test_experts_by_hand() -> None:
    report = comm("mixtral-8x7b", gpus=8, ep=8, seq=4096)
    (dispatch,) = [row for row in rows(report, "expert dispatch") if row.phase == "forward"]
    assert (dispatch.op, dispatch.group, dispatch.calls) == ("all_to_all", "ep", 32)
    assert dispatch.bytes_per_call == 4096 * 2 * 4096 * 2
    worse = comm("mixtral-8x7b", gpus=8, ep=8, seq=4096, expert_imbalance=1.5)
    assert sent(worse, "expert combine") == pytest.approx(1.5 * sent(report, "expert combine"))


@pytest.mark.parametrize("vpp", [1, 2])
def test_what_a_stage_sends_its_neighbour_gets_back(vpp: int) -> None:
    report = comm(gpus=4, pp=4, vpp=vpp, global_batch=8, seq=2048)
    calls = {
        (stage, row.phase): row.calls
        for stage, found in enumerate(report.stages) for row in found if row.op == "send_recv"
    }  # fmt: skip
    for stage in range(4):
        after = (stage + 1) % 4
        assert calls.get((stage, "forward"), 0) == calls.get((after, "backward"), 0)
    assert sum(calls.values()) == 2 * 8 * (4 * vpp - 1)


def test_pipeline_boundaries() -> None:
    split = comm("gpt3-175b", gpus=16, tp=8, pp=2, global_batch=4, framework="megatron-core")
    (row,) = [row for row in split.stages[0] if row.purpose == "pipeline activations"]
    assert row.bytes_per_call == split.setup.layout.seq * 12288 * 2 / 8  # sequence parallel: a shard per rank
    for framework, parts in (("megatron-core", 1), ("megatron-lm", 8)):  # scatter, gather: Narayanan 2021, section 4.1
        job: dict[str, Any] = {"gpus": 16, "tp": 8, "pp": 2, "global_batch": 4, "sequence_parallel": False}
        whole = comm("gpt3-175b", framework=framework, **job)
        (row,) = [row for row in whole.stages[0] if row.purpose == "pipeline activations"]
        assert row.bytes_per_call == whole.setup.layout.seq * 12288 * 2 / parts


def test_stages_in_one_node_do_not_use_the_network() -> None:
    report = comm(gpus=8, pp=4, global_batch=16)
    assert all(row.link.startswith("nvlink") for found in report.stages for row in found)
    far = comm(gpus=16, pp=4, global_batch=16)  # stages 1 and 2 lie on two nodes
    links = [{row.link[:6] for row in found if row.purpose == "pipeline activations"} for found in far.stages]
    assert links == [{"nvlink"}, {"ib-hdr"}, {"nvlink"}, set()]


def test_tied_embedding_is_reduced_between_first_and_last_stage() -> None:
    report = comm("gpt2", gpus=2, pp=2, global_batch=4)
    for found in report.stages:
        (row,) = [row for row in found if row.purpose == "tied embedding gradient"]
        assert (row.op, row.group_size, row.bytes_per_call) == ("all_reduce", 2, report.setup.vocab_padded * 768 * 2)
    assert not [row for row in comm(gpus=2, pp=2, global_batch=4).stages[0] if "tied" in row.purpose]


# The report


def test_report_adds_up() -> None:
    report = comm("llama-2-70b", gpus=64, tp=8, pp=4, global_batch=64, zero=1)
    data = report.to_dict()
    assert data["schema"] == "distsim.comm/1"
    assert data["wire_bytes_per_rank"] == round(sum(row.wire_bytes_per_rank for row in report.collectives))
    assert max(stage["wire_bytes_per_rank"] for stage in data["stages"]) == data["wire_bytes_per_rank"]
    names = {"purpose", "op", "group", "group_size", "dtype", "phase", "calls", "bytes_per_call", "wire_bytes_per_rank",
             "link", "algorithm", "seconds", "exposed_seconds"}  # fmt: skip
    for row in data["collectives"]:
        assert names <= set(row)
        assert row["group"] in ("tp", "dp", "zero", "cp", "ep", "pp")
        assert all(
            isinstance(row[key], int) for key in ("group_size", "calls", "bytes_per_call", "wire_bytes_per_rank")
        )
        assert 0 <= row["exposed_seconds"] <= row["seconds"]


def test_bytes_sent_are_bytes_received_across_every_level() -> None:
    """Per group: what all ranks send is n - 1 times what one must get, whatever the ring or exchange."""
    for row in comm("mixtral-8x7b", gpus=64, tp=2, ep=4, zero=3).collectives:
        n = row.group_size
        received = {"all_gather": (n - 1) / n, "reduce_scatter": (n - 1) / n, "all_to_all": (n - 1) / n,
                    "all_reduce": 2 * (n - 1) / n}[row.op]  # fmt: skip
        assert row.wire_bytes_per_rank == pytest.approx(received * row.bytes_per_call * row.calls)
        assert 0 <= row.level_bytes[0] <= row.wire_bytes_per_rank


FIELDS: dict[str, list[int]] = {
    "tp": [1, 2, 4, 8], "dp": [8, 8, 2, 1], "cp": [1, 1, 2, 2], "zero": [0, 1, 2, 3], "zero_group": [8, 8, 4, 2],
    "sequence_parallel": [0, 1, 0, 1], "seq": [2048, 4096, 2048, 8192], "micro_batch": [1, 2, 4, 1],
    "micro_batches": [1, 4, 2, 8], "recompute_layers": [0, -1, 4, 0], "loss_parallel": [1, 0, 1, 1],
}  # fmt: skip


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan", "torch-ddp"])
@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_arrays_of_layouts_give_what_single_ones_give(framework: str, model: str) -> None:
    setup = resolve(Job(model=model, framework=framework, gpus=8))
    arrays: dict[str, Any] = {name: numpy.array(values) for name, values in FIELDS.items()}
    many = totals(replace(setup, layout=setup.layout.with_(**arrays)))
    for index in range(4):
        one = totals(replace(setup, layout=setup.layout.with_(**{name: v[index] for name, v in FIELDS.items()})))
        for name, value in one.items():
            if name == "seconds" and (framework == "torch-ddp" or model.startswith("mixtral")):
                continue  # in arrays, buckets by tensors are even ones, and experts have buckets of their own
            assert many[name][index] == pytest.approx(value, rel=1e-9), (name, index)


def totals(setup: Setup) -> dict[str, Any]:
    (stage,) = build_stages(setup)
    found = stage_rows(setup, exchange_of(setup), network_of(setup), stage)
    return {
        "wire": sum(row.wire_bytes_per_rank for row in found), "seconds": sum(row.seconds for row in found),
        "crossing": sum(row.level_bytes[0] for row in found),
    }  # fmt: skip


# Gradient accumulation on two T4 (huggingface/accelerate, docs/source/concept_guides/gradient_synchronization.md):
# seconds per batch with gradients reduced after each of 4 micro-steps, and after the last only.
MEASURED = {"two nodes": (2.0, 0.91), "one node": (0.50, 0.41)}
BERT_BYTES = 108_310_272 * 4
MICRO_STEP_SECONDS = 0.38  # what is left of 0.41 and 0.50 s on one node when the exchange is solved for


def test_accumulation_on_two_t4() -> None:
    """The network of the two machines is not stated; 2.5 Gb/s is what their difference in time comes to."""
    gains = {}
    for name, place in (
        ("two nodes", {"gpus_per_node": 1, "internode_gbps_per_gpu": 2.5}),
        ("one node", {"gpus_per_node": 2}),
    ):
        reduce = distsim.collective(op="all_reduce", gpu="t4", gpus=2, bytes=BERT_BYTES, **place).seconds
        gains[name] = 4 * (MICRO_STEP_SECONDS + reduce) / (4 * MICRO_STEP_SECONDS + reduce)
    assert gains["two nodes"] == pytest.approx(MEASURED["two nodes"][0] / MEASURED["two nodes"][1], rel=0.15)
    assert 1.05 < gains["one node"] < 1.3


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 8, "tp": 6, "tp_mode": "2d", "model": "gpt2"}, "does not divide"),
    ({"gpus": 8, "tp": 8, "tp_mode": "2d"}, "do not form a square"),
    ({"gpus": 4, "tp": 4, "tp_mode": "3d"}, "do not form a cube"),
    ({"gpus": 4, "tp": 4, "tp_depth": 2}, "--tp-depth 2 has no effect"),
    ({"gpus": 4, "tp": 4, "tp_mode": "2d", "sequence_parallel": True}, "--tp-mode 1d"),
    ({"gpus": 8, "cp_mode": "ring"}, "no effect with cp 1"),
    ({"gpus": 64, "cp": 64, "cp_mode": "all_to_all"}, "does not divide 32 heads"),
    ({"gpus": 8, "compress": "zip"}, "unknown gradient compression"),
    ({"gpus": 8, "compress": "powersgd-r0"}, "unknown gradient compression"),
    ({"gpus": 8, "compress": "fp16", "precision": "bf16"}, "gradients are already sent in bf16"),
    ({"gpus": 8, "compress": "1bit", "zero": 2}, "zero is 2"),
    ({"gpus": 8, "compress": "1bit", "optimizer": "sgd"}, "made for adam"),
    ({"gpus": 1, "compress": "1bit"}, "one data parallel rank"),
    ({"gpus": 64, "zeropp": "qwz"}, "zero is 0"),
    ({"gpus": 64, "zero": 3, "zeropp": "xyz"}, "unknown part of ZeRO++: xyz"),
    ({"gpus": 8, "zero": 3, "zeropp": "qwz"}, "one domain holds all"),
    ({"gpus": 64, "tp": 2, "zero": 3, "zeropp": "hpz"}, "but tp is 2"),
    ({"gpus": 64, "tp": 2, "zero": 3, "zeropp": "qwz,qgz"}, "or use --zeropp qwz alone"),
    ({"gpus": 8, "sync_every": 10}, "--sync-every 10 has no effect"),
    ({"gpus": 8, "sync": "local-sgd", "zero": 3}, "needs replicas"),
    ({"gpus": 8, "sync": "parameter-server", "zero": 1}, "zero is 1"),
    ({"gpus": 8, "expert_imbalance": 2.0}, "has no experts"),
    ({"model": "mixtral-8x7b", "gpus": 8, "expert_imbalance": 2.0}, "no effect with ep 1"),
    ({"gpus": 4096, "cluster": "jean-zay-a100"}, "do not fit"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DistsimError, match=message.replace("+", r"\+")) as told:
        comm(**{"model": "llama-7b", **options})
    assert told.value.hints


def latent_rows(**options: Any) -> dict[str, list[int]]:
    """Bytes of each tensor parallel exchange of DeepSeek-V3's attention, by operation and phase."""
    job = {"model": "deepseek-v3", "gpu": "h100-sxm", "gpus": 64, "tp": 8, "ep": 8, "zero": 1, "seq": 4096, **options}
    setup = resolve(Job.read(job))
    block = build_stages(setup)[0].layers[-1][0]
    found: dict[str, list[int]] = {}
    for operation in block.operations:
        for one in operation.collectives:
            if operation.name.startswith("attention.") and one.group == "tp" and one.bytes_logical:
                found.setdefault(f"{operation.name} {one.phase} {one.op}", []).append(round(one.bytes_logical))
    return found


def test_latent_attention_gathers_latents() -> None:
    """Down projections are duplicated and run on each rank's tokens: the up projections gather 1,536 and 512 numbers a
    token, and keys the 64 that all heads share, where the hidden state has 7,168 (Megatron-LM, multi_latent_attention).
    """
    tokens = 4096 * 2
    query, keys, shared, hidden = (tokens * width for width in (1536, 512, 64, 7168))
    assert latent_rows() == {
        "attention.query_up forward all_gather": [query], "attention.query_up backward all_gather": [query],
        "attention.query_up backward reduce_scatter": [query], "attention.kv_up forward all_gather": [keys],
        "attention.kv_up backward all_gather": [keys], "attention.kv_up backward reduce_scatter": [keys],
        "attention.kv_down forward all_gather": [shared], "attention.kv_down backward reduce_scatter": [shared],
        "attention.projection forward reduce_scatter": [hidden], "attention.projection backward all_gather": [hidden],
    }  # fmt: skip
    whole = latent_rows(sequence_parallel=False)
    assert whole["attention.query_up backward all_reduce"] == [query] and len(whole) == 3  # inputs are whole already
    plain = latent_rows(framework="torchtitan", zero=2)  # PrepareModuleInput makes the hidden state whole
    assert plain["attention.kv_down forward all_gather"] == [hidden]
    assert "attention.kv_up forward all_gather" not in plain
    direct = latent_rows(model="deepseek-v2-lite", tp=8)  # queries come of the hidden state
    assert direct["attention.query forward all_gather"] == [tokens * 2048]
    chosen = latent_rows(model="deepseek-v3.2")
    assert chosen["attention.index.query forward all_gather"] == [hidden + query]  # the indexer reads both


def test_gradients_of_what_ranks_hold_whole_are_summed_once_a_step() -> None:
    """Norms, routers and products that make latents; of norms within heads without sequence parallelism too."""

    def summed(model: str, **options: Any) -> float:
        report = comm(model, gpu="h100-sxm", gpus=8, tp=2, zero=1, **options)
        found = [row for row in report.collectives if row.purpose == "replicated gradients"]
        assert all((row.calls, row.phase, row.group) == (1, "step", "tp") for row in found)
        return float(sum(row.bytes_per_call for row in found) / report.setup.precision.gradient_bytes)

    assert summed("llama-7b") == 4096 * (2 * 32 + 1)
    assert summed("mixtral-8x7b", ep=2) == 4096 * (2 * 32 + 1) + 32 * 4096 * 8  # a router a layer
    heads = 48 * 2 * 128
    assert summed("qwen3-30b-a3b", ep=2) == 2048 * (2 * 48 + 1) + 48 * 2048 * 128 + heads
    assert summed("qwen3-30b-a3b", ep=2, sequence_parallel=False) == heads
    latent = 7168 * (1536 + 512 + 64) + 1536 + 512  # of a layer, beside its two norms
    assert summed("deepseek-v3", ep=2) == 61 * (latent + 2 * 7168) + 7168 + 58 * 7168 * 256
    assert summed("llama-7b", sequence_parallel=False) == 0


def test_no_clipping_is_told() -> None:
    """Frameworks that do not clip by themselves say that no norm is counted; those that always do count it."""
    job: dict[str, Any] = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 16, "zero": 3}
    usual, asked = (distsim.comm(framework=name, **job) for name in ("torchtitan", "nemo-automodel"))
    always = distsim.comm(framework="megatron-core", **{**job, "zero": 1})
    whole = distsim.comm(framework="torch-ddp", **{**job, "zero": 0})  # every rank has all gradients
    assert not any("--clip" in note for note in whole.notes)
    assert any(row.purpose == "gradient norm" for row in always.collectives)
    assert not any("--clip" in note for note in always.notes)
    for report, words in ((usual, "usual configurations clip"), (asked, "clips only on request")):
        assert not any(row.purpose == "gradient norm" for row in report.collectives)
        assert any("--clip not given" in note and words in note for note in report.notes)
        for stated in (True, False):
            again = distsim.comm(framework=report.setup.framework.name, clip=stated, **job)
            assert not any("--clip" in note for note in again.notes)
            assert any(row.purpose == "gradient norm" for row in again.collectives) is stated


def test_factors_are_never_more_than_their_gradient() -> None:
    assert powersgd_elements(1000, 10, 4) == 4 * 1010
    assert powersgd_elements(1000, 10, 64) == 1000 * 10


def test_blocks_of_four_bits_have_a_scale_of_four_bytes_each() -> None:
    assert quantised_bytes(10 * 2048, 4, 2048) == 10 * (1024 + 4)
    assert quantised_bytes(10 * 2048, 4, 0) == 10 * 1024


def test_stages_send_every_residual_stream() -> None:
    """DeepSeek-V4 mixes four, each as wide as the model."""
    report = comm("deepseek-v4-flash", gpu="h100-sxm", gpus=64, pp=2, ep=32, micro_batch=1)
    (size,) = {row.bytes_per_call for row in rows(report, "pipeline activations")}
    assert size == report.setup.layout.seq * report.setup.model.hidden * 4 * 2


def test_buckets_grow_with_the_ranks_that_share_them() -> None:
    """Megatron core: the larger of 40 million elements and a million for each rank, in whole parameters."""
    for ranks, elements in ((8, 40e6), (128, 128e6)):
        report = comm(gpu="h100-sxm", gpus=ranks, framework="megatron-core", zero=1, precision="bf16-fp32-grads")
        (row,) = rows(report, "gradients")
        assert 4 * elements < row.bytes_per_call < 4 * elements * 2


def test_transformer_engine_gathers_four_numbers_of_each_position_for_the_loss() -> None:
    job = {"gpu": "h100-sxm", "gpus": 8, "tp": 4, "seq": 1024}
    (row,) = rows(comm("llama-3-8b", framework="megatron-bridge", **job), "tensor parallel loss")
    assert (row.op, row.calls, row.bytes_per_call) == ("all_gather", 1, 4 * 4 * 1024 * 4)


def test_experts_buckets_are_as_large_as_all_others() -> None:
    """Though an eighth of the ranks share them."""
    report = comm("mixtral-8x7b", gpu="h100-sxm", gpus=512, ep=8, framework="megatron-core", zero=1)
    sizes = {row.group_size: row.bytes_per_call for row in rows(report, "gradients")}
    assert sizes.keys() == {64, 512} and 2 * 512e6 <= sizes[64] < 2 * 512e6 * 1.2


def test_tables_are_gathered_in_16_bits_beside_narrow_layers() -> None:
    """Llama 3's embedding, output layer and last norm."""
    report = comm("llama-3-8b", gpu="h100-sxm", gpus=8, framework="torchtitan", zero=3, precision="torchao-tensorwise")
    wide = {row.bytes_per_call for row in rows(report, "parameters") if row.dtype == "bf16"}
    assert wide == {2.0 * (2 * 128_256 * 4096 + 4096)}


def test_experts_are_cut_among_as_many_ranks_as_stated() -> None:
    report = comm("mixtral-8x7b", gpu="h100-sxm", gpus=16, tp=4, etp=2, ep=4, framework="megatron-core")
    assert {(row.group, row.group_size) for row in rows(report, "expert dispatch")} == {("ep", 4), ("tp", 2)}


def test_a_predicted_tokens_embedding_is_the_first_stages() -> None:
    """Multi-token prediction on the last stage looks tokens up in a copy, whose gradient both ends add up."""
    job: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 512, "pp": 16, "ep": 32}
    first = [{row.purpose for row in comm("deepseek-v3", **job, mtp=mtp).stages[0]} for mtp in (0, 1)]
    assert ["tied embedding gradient" in purposes for purposes in first] == [False, True]


def test_a_node_shares_a_link_among_no_more_than_it_has() -> None:
    pair = catalog.load("clusters", "dgx-2").model_copy(update={"gpus_per_node": 2})
    whole, part = (host_rate(resolve(Job(model="gpt2", gpus=16, cluster="dgx-2"), given))
                   for given in ({}, {"cluster": pair}))  # fmt: skip
    assert part == 2 * whole


def test_one_backward_hides_what_is_reduced_once() -> None:
    """However many micro-batches a step has, gradients are reduced beside its last one."""

    def exposed(batch: int) -> float:
        report = comm(gpu="a100-sxm4-80gb", gpus=64, global_batch=batch, micro_batch=1, seq=512)
        return sum(row.exposed_seconds for row in rows(report, "gradients"))

    assert exposed(512) == pytest.approx(exposed(64))
    assert exposed(64) > 0


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({"gpus": 16, "tp": 2, "pp": 2, "zero": 1}, [("tp+dp+pp", 16)]),
        ({"gpus": 12, "tp": 4}, [("tp", 4)]),
        ({"gpus": 16, "pp": 4}, [("pp", 4)]),
        ({"gpus": 64, "tp": 2, "pp": 4}, [("tp+pp", 8)]),
        ({"gpus": 16, "zero": 1, "zero_group": 8}, [("zero", 8)]),
        ({"model": "mixtral-8x7b", "gpus": 32, "ep": 8, "zero": 1}, [("dp", 32)]),
        ({"model": "mixtral-8x7b", "gpus": 32, "ep": 8, "zero": 3, "zero_group": 2}, [("zero", 2), ("ep", 8)]),
        ({"model": "mixtral-8x7b", "gpus": 32, "ep": 8, "pp": 2}, [("pp", 2), ("ep+pp", 16)]),
    ],
)
def test_the_gradient_norm_is_a_sum_over_ranks_that_hold_different_gradients(
    options: dict[str, Any], groups: list[tuple[str, int]]
) -> None:
    report = comm(**{"gpu": "h100-sxm", "framework": "megatron-core", **options})
    found = rows(report, "gradient norm")
    assert [("+".join(row.groups), row.group_size) for row in found] == groups
    assert all(row.group in row.groups for row in found)


def test_norms_of_distant_stages_cross_the_network() -> None:
    """Four stages of two nodes each: no two ranks of the sum share a node, though it has but four."""
    near, far = (rows(comm(gpu="h100-sxm", gpus=gpus, pp=4), "gradient norm")[0] for gpus in (8, 64))
    assert (str(near.link), str(far.link)) == ("nvlink-4", "ib-ndr") and far.seconds > 1.8 * near.seconds


def test_replicas_of_shards_reduce_a_shard() -> None:
    report = comm(gpu="h100-sxm", gpus=16, zero=1, zero_group=8, framework="megatron-core")
    size = sum(row.bytes_per_call * row.calls for row in rows(report, "gradients of replicas"))
    assert size == pytest.approx(2 * LLAMA_7B / 8)


def test_both_copies_of_a_model_reduce_their_gradients() -> None:
    """DualPipe has two stages on each device."""
    job: dict[str, Any] = {"gpu": "h100-sxm", "gpus": 16, "pp": 4, "global_batch": 64, "micro_batch": 1, "zero": 1}
    one, two = (
        sum(row.wire_bytes_per_rank for row in comm("gpt3-6.7b", **job, schedule=name).stages[1]
            if row.purpose == "gradients")
        for name in ("1f1b", "dualpipe")
    )  # fmt: skip
    assert two == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize(("dp", "zero"), [(1, 0), (4, 0), (4, 1), (2, 3)])
def test_ranks_of_both_copies_of_a_model_add_up_their_gradients(dp: int, zero: int) -> None:
    """Together as one all-reduce (or reduce-scatter) over the ranks of both copies, which see unlike micro-batches."""
    report = comm("gpt3-6.7b", gpu="h100-sxm", gpus=4 * dp, pp=4, global_batch=4 * dp, zero=zero, schedule="chimera")
    for stage, found in zip(build_stages(report.setup), report.stages, strict=True):
        held = 2 * sum(one.elements * count for one, count in stage.held())
        own = sum(row.wire_bytes_per_rank for row in found if row.purpose == "gradients")
        (added,) = (row for row in found if row.purpose == "gradients of both copies")
        assert (added.op, added.group_size, added.wire_bytes_per_rank) == ("all_reduce", 2, pytest.approx(held / dp))
        times = 2 if zero == 3 else 1  # as often as micro-batches visit a copy
        together = own / times + added.wire_bytes_per_rank
        assert together == pytest.approx(held * (2 - 1 / dp if zero == 0 else 1), rel=0.01)
        assert not any("tied" in row.purpose for row in found)  # both ends are on the ranks of either
    assert not [row for row in comm("gpt3-6.7b", gpus=4, pp=4).collectives if "copies" in row.purpose]


@pytest.mark.parametrize(("zero", "shards"), [(1, 1), (2, 4), (3, 4)])
def test_replicas_of_shards_reduce_at_the_boundary_of_accumulation(zero: int, shards: int, tmp_path: Path) -> None:
    """DeepSpeed's MiCS (runtime/zero/mics.py): shards are reduced in each of four micro-steps from ZeRO 2 on. It is
    gone since 2026."""
    had = 'based_on = "deepspeed"\n[supports]\nzero_group = true\n[source]\nother = "0.18"\nchecked = 2026-11-30\n'
    (tmp_path / "had.toml").write_text(had)
    with pytest.raises(DistsimError, match="not over groups of 8"):
        comm(gpus=16, zero=zero, zero_group=8, framework="deepspeed")
    report = comm(gpus=16, zero=zero, zero_group=8, framework=str(tmp_path / "had.toml"), global_batch=64)
    calls = [sum(row.calls for row in rows(report, name)) for name in ("gradients", "gradients of replicas")]
    assert calls[0] == shards * calls[1]
    whole = comm(gpus=16, zero=0, framework="deepspeed", precision="fp16", global_batch=64, no_sync=False)
    assert any("has no effect with ZeRO 0" in note for note in whole.notes)


def test_each_expert_of_a_rank_fills_buckets() -> None:
    """A bucket closes with the expert's matrix that brings it to 40 million elements, of which none here has more than
    3.2 million."""
    report = comm("qwen3-30b-a3b", gpu="h100-sxm", gpus=16, ep=8, framework="megatron-core", zero=1, precision="bf16")
    (row,) = [row for row in rows(report, "gradients") if row.group_size == 2]
    assert 40e6 <= row.bytes_per_call / 2 < 43.2e6


def test_tied_weights_have_a_bucket_of_their_own_where_ranks_own_parts() -> None:
    """param_and_grad_buffer.py, _does_param_require_new_bucket."""
    job = {"gpu": "h100-sxm", "gpus": 16, "pp": 4, "framework": "megatron-core"}
    calls = [sum(row.calls for row in rows(comm("gpt2-xl", **job, zero=zero), "gradients")) for zero in (0, 1)]
    assert calls[1] == calls[0] + 1


def test_router_weights_travel_beside_tokens() -> None:
    """One number a copy of a token, also where copies are as wide as a latent; kernels of DeepEP carry it with them."""
    for model, width in (("mixtral-8x7b", 4096), ("nemotron-3-super-120b-a12b", 1024)):
        job = {"gpu": "h100-sxm", "gpus": 64, "pp": 8, "ep": 8, "seq": 4096}
        report = comm(model, framework="megatron-core", **job)
        tokens, weights = rows(report, "expert dispatch"), rows(report, "router weights")
        assert [row.bytes_per_call * width for row in weights] == [row.bytes_per_call for row in tokens]
        others = comm(model, framework="megatron-bridge", **job).collectives
        assert not [row for row in others if row.purpose == "router weights"]


def test_stages_without_experts_gather_what_is_updated_once() -> None:
    """Megatron's optimizer of experts is made where a stage has some: not on the first of DeepSeek-V3's."""
    job = {"gpu": "h100-sxm", "gpus": 1280, "pp": 20, "ep": 64, "framework": "megatron-core", "seq": 4096}
    stages = comm("deepseek-v3", zero=1, dp_comm_overlap=False, stage_layers="3,3*18,4", **job).stages
    calls = [sum(row.calls for row in stage if row.purpose == "parameters") for stage in stages[:2]]
    assert calls == [1, 2]


def test_norms_of_experts_are_summed_apart_over_groups_of_their_own() -> None:
    """Of as many ranks: four of tensor parallelism, and four that share experts."""
    job = {"gpu": "h100-sxm", "gpus": 8, "tp": 4, "framework": "megatron-core"}
    for ep, etp, zero, calls in ((4, 1, 0, 2), (4, 1, 1, 1), (1, 4, 0, 1)):
        report = comm("mixtral-8x7b", ep=ep, etp=etp, zero=zero, **job)
        assert sum(row.calls for row in rows(report, "gradient norm")) == calls
