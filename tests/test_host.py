"""What the host of Megatron core's jobs issues beside a layer's operations, and what it need not wait for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from distsim import Job
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.stages import build_stages
from distsim.engine.kernels.launches import AUTOCAST_KERNELS, CALL_KERNELS, DETERMINISTIC_ISSUE, launches
from distsim.engine.kernels.sums import PHASES
from distsim.engine.runs.setup import setup_of
from distsim.engine.step import step_of
from distsim.engine.steps.after import after_last
from distsim.engine.steps.compose import (
    layout_numbers,
    micro_batch,
    stage_numbers,
)
from distsim.engine.steps.stage_seconds import BACKWARD_ISSUE, host_seconds
from distsim.engine.steps.work import work_of
from distsim.engine.traffic import comm_of
from distsim.formulas.traffic import boundary_calls
from distsim.interop.runs import Run
from distsim.specs.timing import Timing

TINY = {
    "model": "gpt/tiny", "family": "gpt", "layers": "12", "hidden": "512", "heads": "8", "ffn_hidden": "2048",
    "vocab": "50257",
    "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "1024", "micro_batch": "4", "global_batch": "32", "tp": "1",
    "pp": "1", "dp": "8", "precision": "bf16", "recompute": "none", "framework": "megatron-lm", "year": "2026",
    "source": "somebody's tests",
}  # fmt: skip
TIMING = Timing(kernel_issue_seconds=1.5e-4, data_factor=1.0, exposed_fraction=0.0).model_dump()


def row(**cells: str) -> Run:
    return Run({**TINY, **cells}, 1)


def job(**more: Any) -> Setup:
    options = {"model": "llama-7b", "gpu": "h100-sxm", "gpus": 64, "framework": "nemo", "tp": 2, "zero": 1}
    return resolve(Job(**{**options, "global_batch": 64, **more}))


def told(setup: Setup, **traffic: Any) -> Setup:
    own = setup.framework.traffic.model_copy(update=traffic)
    return replace(setup, framework=setup.framework.model_copy(update={"traffic": own}))


def test_filling_what_is_allocated_costs_the_host_more() -> None:
    plain, filled = setup_of(row()), setup_of(row(notes="dev env; deterministic mode; flags: --bf16=True"))
    assert filled.kernels.deterministic and not plain.kernels.deterministic
    assert not setup_of(row(notes="nondeterministic algorithms")).kernels.deterministic
    one, other = (stage_numbers(work_of(setup))[0] for setup in (plain, filled))
    assert other["forward.issued"] == pytest.approx(one["forward.issued"] * DETERMINISTIC_ISSUE)
    assert other["forward.kernels"] == one["forward.kernels"]


def test_notes_tell_of_graphs() -> None:
    noted = setup_of(row(notes="flags: --cuda-graph-impl=transformer_engine --cuda-graph-modules=[attn mlp]"))
    assert (setup_of(row()).kernels.graphs, noted.kernels.graphs) == ("none", "modules")


def test_every_transfer_between_stages_is_issued_like_any_other_exchange() -> None:
    assert [boundary_calls(1, 4, index) for index in range(4)] == [1, 2, 2, 1]
    assert [boundary_calls(3, 2, index) for index in range(2)] == [5, 5]
    assert boundary_calls(1, 1, 0) == 0
    first, middle = stage_numbers(work_of(setup_of(row(pp="4", dp="2", grad_accum="4"))))[:2]
    whole = stage_numbers(work_of(setup_of(row())))[0]
    layer = middle["forward.issued"] - 2 * CALL_KERNELS
    assert layer / 3 == pytest.approx((whole["forward.issued"] - layer * 4) / 12 + layer / 3, rel=0.2)
    chunks = stage_numbers(work_of(setup_of(row(pp="4", vpp="3", dp="2", grad_accum="4"))))[1]
    assert chunks["forward.issued"] - middle["forward.issued"] == pytest.approx(4 * CALL_KERNELS)
    graphed = setup_of(row(pp="4", dp="2", grad_accum="4"))
    graphed = replace(graphed, kernels=graphed.kernels.model_copy(update={"graphs": "iteration"}))
    assert stage_numbers(work_of(graphed))[1]["forward.issued"] == 0
    assert first["forward.issued"] > 0


def test_updated_parameters_are_gathered_beside_the_next_forward() -> None:
    """As many bytes; of the time, what one micro-batch's forward does not hide."""
    ahead = job()
    after = told(ahead, overlap_updated=False)
    times = []
    for setup in (ahead, after):
        numbers, y = stage_numbers(work_of(setup))[0], layout_numbers(setup)
        batch = micro_batch(numbers, y, TIMING)
        times.append((numbers, batch, after_last(numbers, TIMING, batch).parts()["data_parallel"]))
    (numbers, batch, hidden), (late, _, shown) = times
    gather = numbers["dp_ahead"]
    assert 0 < gather < batch.forward and late["dp_ahead"] == 0
    assert late["dp_step"] == pytest.approx(numbers["dp_step"] + gather)
    assert shown - hidden == pytest.approx(gather)
    assert after_last({**numbers, "dp_ahead": 3 * batch.forward}, TIMING, batch).ahead.left == pytest.approx(
        2 * batch.forward
    )
    never = {**TIMING, "exposed_fraction": 0.5}
    assert after_last(numbers, never, batch).ahead.left == pytest.approx(gather / 2)
    rows = [[one for one in comm_of(setup).collectives if one.purpose == "parameters"] for setup in (ahead, after)]
    assert rows[0][0].wire_bytes_per_rank == rows[1][0].wire_bytes_per_rank
    assert sum(one.exposed_seconds for one in rows[0]) < sum(one.exposed_seconds for one in rows[1])


def test_nothing_is_gathered_ahead_without_sharded_states_or_where_it_is_not_the_softwares_way() -> None:
    for setup in (job(zero=0), job(framework="fsdp", zero=3), job(framework="megatron-2021", zero=0)):
        assert stage_numbers(work_of(setup))[0]["dp_ahead"] == 0


def test_a_step_drawn_with_what_is_gathered_ahead_ends_when_the_step_does() -> None:
    from distsim.engine.steps.timeline import AHEAD, timeline_of

    report = step_of(job())
    drawn = timeline_of(report)
    some = [one for one in drawn.segments(0) if one.name == AHEAD]
    assert {one.exposed for one in some} == {False, True}
    assert min(one.start for one in some) == 0
    assert max(one.end for one in drawn.segments(0)) == pytest.approx(report.seconds)
    assert math.isclose(sum(report.breakdown.values()), report.seconds, rel_tol=1e-9)


def test_what_is_computed_again_costs_the_host_what_forward_does() -> None:
    """It is forward's code; backward's own kernels are issued by autograd."""
    timing, layout = {"kernel_issue_seconds": 1e-4}, {"blocking": 0}
    stage = {f"{phase}.{name}": 0.0 for phase in PHASES for name in ("issued", "kernels")}
    first, _ = host_seconds({**stage, "forward.issued": 100.0}, layout, timing)
    _, again = host_seconds({**stage, "recompute.issued": 100.0}, layout, timing)
    _, after = host_seconds({**stage, "backward.issued": 100.0}, layout, timing)
    assert first == again == pytest.approx(1e-2) and after == pytest.approx(BACKWARD_ISSUE * 1e-2)


def test_autocast_casts_around_each_module() -> None:
    """Queries, keys and values are three linear layers of plain torch, gate and up are two, whose input and weight
    autocast casts for each."""
    setups = [resolve(Job(model="llama-7b", gpus=1, gpu="h100-sxm", framework="torch-ddp", precision=one))
              for one in ("amp-bf16", "pure-bf16")]  # fmt: skip
    cast, plain = (
        {row.name: launches(setup, row).kernels[0] for row in build_stages(setup)[0].layers[0][0].operations}
        for setup in setups
    )
    more = {name: (cast[name] - plain[name]) / AUTOCAST_KERNELS for name in cast if cast[name] != plain[name]}
    assert more == {"attention.qkv": 3, "attention.projection": 1, "mlp.up": 2, "mlp.down": 1}
