"""Experts of a fixed capacity: padded slots are computed, sent and kept, and masks put tokens into them."""

from __future__ import annotations

from typing import Any

import pytest

from distsim import comm, memory, search, step
from distsim.engine.jobs.resolve import resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.runs.setup import setup_of
from distsim.errors import DistsimError
from distsim.interop.runs import Run
from distsim.interop.runs.expert_routing import capacity_factor
from distsim.layers.ledger import Operation
from distsim.specs.job import Job

JOB: dict[str, Any] = {"model": "deepseek-v3", "gpu": "mi355x", "gpus": 64, "ep": 8, "zero": 3, "seq": 4096,
                       "micro_batch": 7, "recompute": "full"}  # fmt: skip
SLOTS_OF_A_TOKEN = 8
WIDTH = 7168


def _operations(factor: float | None, framework: str = "maxtext", **more: Any) -> dict[str, Operation]:
    setup = resolve(Job(**{**JOB, "framework": framework, "capacity_factor": factor, **more}))
    blocks = [block for block, _ in build_stages(setup)[0].layers]
    return {operation.name: operation for operation in blocks[-1].operations}


def _kept(operation: Operation) -> float:
    return sum(float(tensor.elements * tensor.bytes_each) for tensor in operation.saved)


def test_padded_slots_are_computed_and_sent() -> None:
    once, twice = _operations(1.0), _operations(2.0)
    assert twice["mlp.experts.up"].flops_forward == 2 * once["mlp.experts.up"].flops_forward
    assert twice["mlp.dispatch"].collectives[0].bytes_logical == 2 * once["mlp.dispatch"].collectives[0].bytes_logical


def test_masks_grow_with_the_sequence() -> None:
    """2 x tokens x slots of their sequence x width; dispatch has one product backward, combine two."""
    found = _operations(1.25)
    tokens, slots = 7 * 4096, 4096 * SLOTS_OF_A_TOKEN * 1.25
    assert found["mlp.dispatch"].flops_forward == found["mlp.dispatch"].flops_backward == 2 * tokens * slots * WIDTH
    assert found["mlp.combine"].flops_backward == 2 * found["mlp.combine"].flops_forward
    longer = _operations(1.25, seq=8192, micro_batch=1)["mlp.dispatch"].flops_forward
    assert longer == 4 * _operations(1.25, micro_batch=1)["mlp.dispatch"].flops_forward


def test_other_frameworks_put_tokens_in_place_by_index() -> None:
    assert _operations(1.25, "megatron-core")["mlp.dispatch"].kind == "copy"


def test_capacity_takes_time_and_memory() -> None:
    """MaxText on 64 MI355X took 28.4, 35.4 and 54.9 s on text (ROCm blog on dropless experts, 2026)."""
    times = [step(**JOB, framework="maxtext", capacity_factor=factor).seconds for factor in (1.25, 2, 4)]
    assert times[1] - times[0] == pytest.approx(7.0, rel=0.25)
    assert times[2] - times[1] == pytest.approx(19.5, rel=0.25)
    kept = {**JOB, "recompute": "none", "micro_batch": 1, "framework": "maxtext"}
    assert memory(**kept, capacity_factor=2).peak > 1.05 * memory(**kept, capacity_factor=1).peak


def test_buffers_of_fixed_shape_hold_the_worst_case() -> None:
    """Without a capacity XLA has room for all tokens on one rank; products and exchanges are what they are."""
    whole, single = _operations(None), _operations(None, ep=1)
    by_index = _operations(None, "megatron-core")
    assert whole["mlp.dispatch"].bytes_read == 8 * by_index["mlp.dispatch"].bytes_read
    assert whole["mlp.experts.activation"].bytes_read == 8 * single["mlp.experts.activation"].bytes_read
    assert whole["mlp.experts.up"].flops_forward == by_index["mlp.experts.up"].flops_forward
    assert whole["mlp.dispatch"].collectives[0].bytes_logical == by_index["mlp.dispatch"].collectives[0].bytes_logical


def test_what_nothing_reads_is_refused() -> None:
    with pytest.raises(DistsimError, match="no experts"):
        step("llama-7b", capacity_factor=1.5)
    with pytest.raises(DistsimError, match="no experts"):
        step("llama-7b", expert_imbalance=1.5)
    with pytest.raises(DistsimError, match="equally many slots"):
        step(**JOB, capacity_factor=1.5, expert_imbalance=1.5)


@pytest.mark.parametrize(
    ("notes", "source", "factor"),
    [
        ("capacity factor 1.25", "", 1.25),
        ("mean over steps; capacity_factor=4.0", "dense-cf4", 4.0),
        ("", "pdbs-sweep.md (eea3136f) dense-cf1.25 tuned", 1.25),
        ("cf = capacity factor", "", None),
        ("capacity factor of 2", "", 2.0),
        ("capacity_factor=-1", "", None),
        ("acf2", "(cf12ab3d)", None),
    ],
)
def test_capacity_in_notes(notes: str, source: str, factor: float | None) -> None:
    assert capacity_factor(Run({"notes": notes, "source": source}, 1)) == factor


@pytest.mark.parametrize(
    ("notes", "imbalance"),
    [
        ("capacity factor 1 with dropping", 1.0),  # no rank gets more than the mean
        ("expert rank capacity factor 4", None),  # room for four times the mean, which no rank needs
        ("capacity factor 1.5", None),
        ("forced balance, capacity factor 1.1", None),
    ],
)
def test_room_for_more_tokens_than_come_is_no_imbalance(notes: str, imbalance: float | None) -> None:
    cells = {"model": "deepseek-v3", "gpu": "gb300", "n_gpus": "256", "seq_len": "4096", "tp": "1", "pp": "4",
             "cp": "1", "ep": "32", "micro_batch": "1", "global_batch": "1024", "framework": "nemo-mlperf"}  # fmt: skip
    assert setup_of(Run({**cells, "notes": notes}, 1)).job.expert_imbalance == imbalance


def test_the_busiest_rank_holds_what_it_is_sent() -> None:
    """Tensors of the rank's own experts grow with a stated imbalance; indices and all else do not."""
    plain, busy = (_operations(None, "megatron-core", expert_imbalance=share) for share in (None, 1.5))
    ratios = {name: _kept(busy[name]) / _kept(one) for name, one in plain.items() if _kept(one)}
    experts = {name for name, ratio in ratios.items() if ratio == pytest.approx(1.5)}
    assert experts >= {"mlp.experts.up", "mlp.experts.activation", "mlp.experts.down"}
    assert {name for name, ratio in ratios.items() if ratio == 1.0} == ratios.keys() - experts
    assert busy["mlp.experts.up"].flops_forward == plain["mlp.experts.up"].flops_forward
    kept = {**JOB, "recompute": "none", "micro_batch": 1}
    assert memory(**kept, expert_imbalance=1.5).peak > 1.05 * memory(**kept).peak
    with pytest.raises(DistsimError, match="no effect with ep 1"):
        memory(**{**kept, "ep": 1}, expert_imbalance=1.5)


def test_no_rank_has_more_tokens_than_are_sent_to_its_experts() -> None:
    """Two of eight experts per token: a rank of one expert has at most half of all pairs, four times the mean."""
    job = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 8, "zero": 1, "seq": 4096, "micro_batch": 1}
    for ep, most in ((2, 2), (4, 4), (8, 4)):
        assert step(Job(**job, ep=ep, expert_imbalance=most)).seconds > step(Job(**job, ep=ep)).seconds
        with pytest.raises(DistsimError, match=f"(has at most|no rank has more than) {most} times the mean"):
            step(Job(**job, ep=ep, expert_imbalance=most + 0.1))


def test_a_search_leaves_out_ranks_too_few_for_an_imbalance() -> None:
    job = {"model": "deepseek-v2-lite", "gpu": "h100-sxm", "gpus": 8, "global_batch": 64, "seq": 4096}
    assert search(**job, expert_imbalance=3, ep="8").best
    with pytest.raises(DistsimError, match="the other constraints would allow: 1, 4, 8"):
        search(**job, expert_imbalance=3, ep="2")


@pytest.mark.parametrize(("framework", "grown"), [("megatron-core", 3), ("nemo", 3), ("torchtitan", 1)])
def test_ranks_that_share_experts_gather_what_the_busiest_was_sent(framework: str, grown: int) -> None:
    """Where copies of tokens are gathered behind the all-to-all; torchtitan gathers tokens before they are routed."""
    zero = 3 if framework == "torchtitan" else 1
    job = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "gpus": 16, "tp": 2, "ep": 4, "etp": 2, "seq": 4096,
           "framework": framework, "zero": zero}  # fmt: skip
    plain, busy = (comm(**job, expert_imbalance=share).collectives for share in (None, 3))
    ratios: dict[str, set[float]] = {"ep": set(), "tp": set(), "": set()}
    for one, other in zip(plain, busy, strict=True):
        routed = one.purpose in ("expert dispatch", "expert combine", "router weights")
        ratios[one.group if routed else ""].add(float(other.bytes_per_call / one.bytes_per_call))
    assert ratios == {"ep": {3}, "tp": {grown}, "": {1}}
