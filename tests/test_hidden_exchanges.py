"""Exchanges of experts beside computation: over NICs they hold units of the chip, which products lose."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import distsim
from distsim import Job
from distsim.engine.jobs.resolve import resolve
from distsim.engine.steps.after import after_last
from distsim.engine.steps.beside import EXCHANGE_UNITS, hidden_share
from distsim.engine.steps.compose import MicroBatch, layout_numbers, micro_batch, stage_numbers
from distsim.engine.steps.copies import one_link
from distsim.engine.steps.timeline import timeline_of

STAGES: dict[str, Any] = {"model": "deepseek-v3", "gpu": "h800-sxm", "gpus": 1024, "pp": 16, "zero": 1, "seq": 4096,
                          "global_batch": 4096, "stage_layers": "balanced"}  # fmt: skip


def test_kernels_between_nodes_take_twenty_of_132_units() -> None:
    """DeepSeek-V3, section 3.2.2: 20 SMs of an H800 send tokens; within a node or a rack few are needed."""
    assert hidden_share(resolve(Job(**STAGES, ep=64))) == pytest.approx(1 - EXCHANGE_UNITS / 132)
    assert hidden_share(resolve(Job(**STAGES, ep=8))) == 1
    assert hidden_share(resolve(Job(**{**STAGES, "gpu": "gb200"}, ep=64))) == 1


def exposed(**options: Any) -> tuple[float, float]:
    report = distsim.step(**STAGES, framework="megatron-bridge", vpp=2, **options)
    return report.breakdown["expert_parallel"], report.seconds


def test_overlap_pays_though_products_slow_down() -> None:
    """What is hidden shows again as the units' share of it, so overlapping saves less than all, and still saves."""
    (apart, longer), (beside, step) = exposed(ep=64), exposed(ep=64, expert_overlap=True)
    filling = 16 / 64  # of the micro-batches, which have nothing beside them
    assert beside >= apart * (filling + (1 - filling) * EXCHANGE_UNITS / 132) * (1 - 1e-9)
    assert step < longer
    (apart, longer), (beside, step) = exposed(ep=8), exposed(ep=8, expert_overlap=True)
    assert beside == pytest.approx(apart * filling, rel=1e-6) and step < longer


def test_what_is_reduced_once_hides_behind_one_backward() -> None:
    """Backward takes 2 s; what is gathered once has a forward of 1 s. Copies to the host take another link, so that
    they hide behind what is left of the reduction as well."""
    batch = MicroBatch(1.0, 2.0, (0.0, 2.0), {"tensor_parallel": 0.0}, {}, {})
    names = ("reduce", "dp_ahead", "gather_once", "tp_step", "dp_step", "dp_stated", "optimizer", "offload_once",
             "offload_step")  # fmt: skip
    nothing = dict.fromkeys((*names, "updates", "decomposing", "one_link"), 0.0)
    stage = {**nothing, "reduce": 5.0, "dp_ahead": 5.0, "offload_once": 6.0}
    timing = {"data_factor": 1.0, "gather_factor": 1.0, "exposed_fraction": 0.0, "optimizer": 1.0}
    found = after_last(stage, timing, batch)
    assert (found.reduce.left, found.copied.left, found.ahead.left) == pytest.approx((3.0, 1.0, 4.0))
    waiting = after_last(stage, timing, batch._replace(waits=0.5))  # of backward, for activations from the host
    assert (waiting.reduce.left, waiting.copied.left) == pytest.approx((2.5, 1.0))


def test_no_step_is_shorter_for_slower_products() -> None:
    """Copies and a reduction that are both longer than backward run beside each other: what each hid behind backward
    alone made a step longer, the faster its products were."""
    job = {"model": "mixtral-8x7b", "gpu": "v100-sxm2-32gb", "gpus": 64, "tp": 4, "ep": 4, "micro_batch": 4,
           "seq": 1024, "global_batch": 64, "offload": "activations"}  # fmt: skip
    times = [distsim.step(**job, gpu_power=watts).seconds for watts in (300, 250, 200, 150)]
    assert all(slow >= fast * (1 - 1e-4) for fast, slow in itertools.pairwise(times))


@pytest.mark.parametrize(("forward", "backward"), [(1.0, 2.0), (1.0, 3.0), (1.0, 1.0), (0.5, 2.0)])
def test_a_shorter_forward_hides_no_less_of_a_reduction(forward: float, backward: float) -> None:
    """Recomputation lengthens backward, frozen weights shorten it; tensor parallel exchanges are shared by time."""
    batch = MicroBatch(forward, backward, (0.0, backward), {"tensor_parallel": 0.3}, {}, {})
    names = ("reduce", "dp_ahead", "gather_once", "tp_step", "dp_step", "dp_stated", "optimizer", "offload_once",
             "offload_step", "updates", "decomposing", "one_link")  # fmt: skip
    timing = {"data_factor": 1.0, "gather_factor": 1.0, "exposed_fraction": 0.0, "optimizer": 1.0}
    found = after_last({**dict.fromkeys(names, 0.0), "reduce": 9.0}, timing, batch)
    assert found.reduce.beside == pytest.approx(backward * (1 + 0.3 / (forward + backward)))


CARDS: dict[str, Any] = {"model": "llama-3-70b", "gpus": 4, "zero": 3, "lora_rank": 16, "quantize": "nf4", "seq": 2048,
                         "framework": "huggingface"}  # fmt: skip


@pytest.mark.parametrize(("gpu", "shared"), [("rtx-4090", True), ("h100-sxm", False)])
def test_copies_share_the_link_of_cards_that_have_no_other(gpu: str, shared: bool) -> None:
    """What hides behind the same computation as gathers of cards on PCIe would need the link twice at a time."""
    step = distsim.step(**CARDS, gpu=gpu, offload="activations")
    (stage,) = stage_numbers(step.work)
    sizes = layout_numbers(step.setup, step.correction.state), step.timing.model_dump()
    apart, one = (micro_batch({**stage, "one_link": link}, *sizes) for link in (0, 1))
    assert one.others["offload"] > 1.1 * apart.others["offload"]
    assert step.breakdown["offload"] == pytest.approx((one if shared else apart).others["offload"], rel=0.02)
    moved = stage["offload_forward"] + stage["offload_backward"]
    gathered = (stage["gather_forward"] + stage["gather_backward"]) * step.timing.gather_factor
    assert moved + gathered < one.seconds


def test_gradients_of_cards_wait_for_the_link_that_reduces_them() -> None:
    """As after_last has it, of 4 s of backward, 2 of reduction and 3 of copies: one second does not find its link."""
    batch = MicroBatch(1.0, 4.0, (0.0, 4.0), {"tensor_parallel": 0.0}, {}, {})
    timing = {"data_factor": 1.0, "gather_factor": 1.0, "exposed_fraction": 0.0, "optimizer": 1.0}
    names = ("dp_ahead", "gather_once", "tp_step", "dp_step", "dp_stated", "optimizer", "updates", "decomposing",
             "offload_step")  # fmt: skip
    alone = dict.fromkeys(names, 0.0)
    for one, left in ((0, 0.0), (1, 1.0)):
        found = after_last({**alone, "reduce": 2.0, "offload_once": 3.0, "one_link": one}, timing, batch)
        assert (found.reduce.left, found.copied.left) == (0.0, left)


@pytest.mark.parametrize(
    ("link", "reduced", "gradients", "ahead"),
    [(0, 0.5, 0.5, 1.0), (1, 3.5, 6.0, 1.5)],
)
def test_one_link_has_the_copies_of_activations_too(link: int, reduced: float, gradients: float, ahead: float) -> None:
    """Of 4 s of backward, which waits half a second more for copies that take 3, and as long for gathers of 0.75 s: a
    reduction of 5 s finds 1.5 s of a link that both share, and gradients for the host none of it. Of a forward of 1 s,
    beside copies of 0.5, parameters find the half."""
    batch = MicroBatch(1.0, 4.0, (0.0, 4.0), {"tensor_parallel": 0.0}, {}, {}, waits=0.5, copied=(0.5, 3.0),
                       gathers=0.5, moved=0.75)  # fmt: skip
    timing = {"data_factor": 1.0, "gather_factor": 1.0, "exposed_fraction": 0.0, "optimizer": 1.0}
    names = ("gather_once", "tp_step", "dp_step", "dp_stated", "optimizer", "updates", "decomposing", "offload_step")
    stage = {**dict.fromkeys(names, 0.0), "dp_ahead": 2.0, "reduce": 5.0, "offload_once": 6.0, "one_link": link}
    found = after_last(stage, timing, batch)
    assert (found.reduce.left, found.copied.left, found.ahead.left) == (reduced, gradients, ahead)


def test_a_reduction_between_cards_does_not_hide_behind_copies() -> None:
    job = {"model": "gpt2-xl", "gpus": 4, "framework": "torch-ddp", "micro_batch": 2, "seq": 1024}
    for gpu, costs in (("rtx-4090", True), ("a100-sxm4-80gb", False)):
        alone, beside = (distsim.step(**job, gpu=gpu, offload=kind) for kind in ("none", "activations"))
        more = beside.breakdown["data_parallel"] / alone.breakdown["data_parallel"]
        assert more > 1.05 if costs else more < 1.0001


@pytest.mark.parametrize(
    ("cluster", "gpus", "more", "shared"),
    [
        ("workstation-4x-rtx-3090-bridged", 2, {}, 0), ("workstation-4x-rtx-3090-bridged", 4, {}, 1),
        ("workstation-4x-rtx-3090-bridged", 4, {"pp": 2}, 0), ("xe7740-h200-nvl", 4, {}, 0),
        ("server-8x-h100-nvl", 8, {"tp": 2}, 1), ("dgx-h100", 8, {}, 0),
    ],
)  # fmt: skip
def test_a_bridge_leaves_the_link_to_the_host_free(cluster: str, gpus: int, more: dict[str, int], shared: int) -> None:
    assert one_link(resolve(Job(model="llama-3-8b", cluster=cluster, gpus=gpus, **more))) == shared


@pytest.mark.parametrize("options", [
    {"model": "gpt-oss-20b", "gpu": "a100-sxm4-80gb", "gpus": 8, "pp": 4, "cp": 2, "global_batch": 12},
    {"model": "bitnet-b1.58-2b-4t", "gpu": "rtx-4090", "gpus": 16, "pp": 4, "schedule": "zb-h2", "global_batch": 8},
])  # fmt: skip
def test_what_reductions_cost_a_pass_trails_it(options: dict[str, Any]) -> None:
    """Copies of activations that wait longer for a link that reductions take do so behind what other stages wait for,
    so that overlapping reductions makes no step longer."""
    job = {**options, "zero": 2, "seq": 4096, "offload": "activations"}
    beside, apart = (distsim.step(**job, dp_comm_overlap=overlaps) for overlaps in (True, False))
    assert beside.seconds < apart.seconds
    assert timeline_of(beside).run.makespan > 0
    layout, timing = layout_numbers(beside.setup, beside.correction.state), beside.timing.model_dump()
    for stage in stage_numbers(beside.work):
        batch = micro_batch(stage, layout, timing)
        without = micro_batch({**stage, "reduce_each": 0.0}, layout, timing)
        assert batch.passed_on == pytest.approx(without.seconds) and batch.trailing >= 0
