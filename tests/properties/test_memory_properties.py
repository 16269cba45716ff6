"""Laws that hold for every layout: shards sum to the whole, more work never needs less memory, all is finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import distsim
from distsim.engine.memory import MemoryReport
from distsim.errors import DistsimError
from distsim.layers.ledger import Parameter

DENSE, SPARSE = "llama-7b", "mixtral-8x7b"
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
powers = st.sampled_from([1, 2, 4, 8])
jobs = st.fixed_dictionaries(
    {
        "model": st.sampled_from([DENSE, SPARSE, "gpt2-xl", "llama-3-8b"]),
        "tp": powers, "pp": st.sampled_from([1, 2, 4]), "cp": st.sampled_from([1, 2]), "dp": powers,
        "zero": st.sampled_from([0, 1, 2, 3]), "micro_batch": st.integers(1, 4),
        "seq": st.sampled_from([256, 512, 1024]), "recompute": st.sampled_from(["none", "selective", "full"]),
        "precision": st.sampled_from(["bf16", "fp16", "fp32", "pure-bf16"]),
        "optimizer": st.sampled_from(["adamw", "sgd", "adafactor"]), "attention": st.sampled_from(["flash", "eager"]),
    }
)  # fmt: skip


def memory(**options: Any) -> MemoryReport:
    """The report, or a discarded example where the layout is not valid for the model."""
    try:
        return distsim.memory(distsim.Job(**options))
    except DistsimError:
        assume(False)
        raise


def held(report: MemoryReport) -> float:
    names = ("parameters", "gradients", "optimizer")
    return sum(stage.categories[name] for stage in report.stages for name in names)


@FEW
@given(jobs)
def test_all_is_finite_and_peak_is_the_sum(job: dict[str, Any]) -> None:
    report = memory(**job)
    for stage in report.stages:
        sizes = [*stage.categories.values(), stage.saved.total, stage.peak, *(moment.total for moment in stage.moments)]
        assert all(math.isfinite(size) and size >= 0 for size in sizes)
        assert stage.peak == pytest.approx(sum(stage.categories.values()))
        assert stage.peak >= max(sum(stage.categories[name] for name in ("parameters", "optimizer")), 1)
    assert report.peak == round(max(stage.peak for stage in report.stages))
    assert sum(stage.layers for stage in report.stages) == report.setup.model.layers


@FEW
@given(jobs, st.integers(1, 3), st.sampled_from([2, 4]))
def test_more_tokens_never_need_less(job: dict[str, Any], more: int, longer: int) -> None:
    peak = memory(**job).peak
    assert memory(**{**job, "micro_batch": job["micro_batch"] + more}).peak >= peak
    assert memory(**{**job, "seq": job["seq"] * longer}).peak >= peak


@FEW
@given(jobs)
def test_zero_never_raises_the_states(job: dict[str, Any]) -> None:
    sizes = [held(memory(**{**job, "zero": zero})) for zero in range(4)]
    assert sizes == sorted(sizes, reverse=True)
    if job["dp"] * job["cp"] > 1:
        assert sizes[3] < sizes[0]


@FEW
@given(jobs)
def test_recompute_never_keeps_more(job: dict[str, Any]) -> None:
    kept = [
        [stage.saved.total for stage in memory(**{**job, "recompute": how}).stages]
        for how in ("none", "selective", "full")
    ]
    for none, selective, full in zip(*kept, strict=True):
        assert min(none, selective) >= full
        # flash attention keeps less than Megatron's checkpoint of it, which holds the whole projection
        assert none >= selective or (job["attention"] == "flash" and selective < 1.2 * none)


def elements(report: MemoryReport) -> float:
    """Parameters of the whole network, put together from what the ranks of one replica own."""
    total = 0.0
    layout = report.setup.layout
    from distsim.engine.jobs.stages import build_stages

    for stage in build_stages(report.setup):
        for parameter, times in stage.parameters:
            total += parameter.elements * times * _shards(parameter, layout)
    return total


def _shards(parameter: Parameter, layout: Any) -> float:
    if parameter.group == "expert":
        return float(layout.ep * (layout.etp if parameter.tensor_parallel else 1))
    return float(layout.tp if parameter.tensor_parallel else 1)


@FEW
@given(
    st.sampled_from([(DENSE, 1), (SPARSE, 1), (SPARSE, 2), (SPARSE, 8)]), st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]), st.sampled_from([1, 8]),
)  # fmt: skip
def test_shards_sum_to_the_whole(model: tuple[str, int], tp: int, pp: int, dp: int) -> None:
    name, ep = model
    report = memory(model=name, ep=ep, tp=tp, pp=pp, dp=dp, seq=256)
    whole = distsim.load_model(name).parameters
    padding = 2 * (report.setup.vocab_padded - report.setup.model.vocab) * report.setup.model.hidden
    assert elements(report) == pytest.approx(whole + padding, rel=1e-12)


@FEW
@given(jobs)
def test_zero_shards_sum_to_the_whole(job: dict[str, Any]) -> None:
    assume(job["model"] != SPARSE)
    whole = memory(**{**job, "zero": 0})
    shared = memory(**{**job, "zero": 3})
    ranks = whole.setup.layout.dp * whole.setup.layout.cp
    for alone, part in zip(whole.stages, shared.stages, strict=True):
        for name in ("parameters", "gradients", "optimizer"):
            assert part.categories[name] * ranks == pytest.approx(alone.categories[name])


def test_offloading_takes_off_the_gpu_what_it_names() -> None:
    job = {"model": "llama-7b", "gpus": 8, "zero": 3, "recompute": "full", "micro_batch": 4}
    here = distsim.memory(**job).stages[0].categories
    for kind, emptied in (("optimizer", {"optimizer", "gradients"}), ("parameters", {"parameters"})):
        there = distsim.memory(**job, offload=kind).stages[0].categories
        assert {name for name in here if here[name] and not there[name]} == emptied
    assert distsim.memory(**job, offload="activations").peak < distsim.memory(**job).peak
    assert (
        distsim.memory(**job, offload="optimizer,activations").peak < distsim.memory(**job, offload="activations").peak
    )


@pytest.mark.parametrize(
    "options",
    [{"offload": "all"}, {"offload": ""}, {"offload": "none,optimizer"}, {"offload": "parameters", "zero": 1},
     {"offload_to": "cpu"}, {"offload": "optimizer", "offload_to": "nvme"}],
)  # fmt: skip
def test_offloading_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DistsimError):
        distsim.memory(distsim.Job.read({"model": "llama-7b", **options}))
