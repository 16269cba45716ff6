"""Traffic and memory held against what Megatron core itself does (tests/oracles/megatron_core.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from distsim import catalog
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import memory_of
from distsim.engine.traffic import comm_of
from distsim.specs.framework import Framework
from distsim.specs.job import Job

ORACLES = Path(__file__).parent / "oracles"
RECORDED = json.loads((ORACLES / "megatron_core.json").read_text())
RECORDED["sharded"] = json.loads((ORACLES / "megatron_fsdp.json").read_text())
Key = tuple[str, str, int, int]
BUCKETS = ("gradients", "gradients of replicas", "parameters")


def name_of(case: dict[str, Any]) -> str:
    beside = [f"{key}={case[key]}" for key in ("stage", "bucket", "fused", "loss_exchange") if key in case]
    return " ".join([case["model"], *(f"{key}={value}" for key, value in case["job"].items()), *beside])


def cases(part: str) -> Any:
    return pytest.mark.parametrize("case", RECORDED[part], ids=name_of)


def changed(framework: Framework, case: dict[str, Any]) -> Framework:
    """The framework with settings that no job has."""
    update: dict[str, Any] = {}
    if "bucket" in case:
        sizes = {"bucket_elements": case["bucket"], "bucket_elements_per_rank": 0}
        update["traffic"] = framework.traffic.model_copy(update=sizes)
    kernels = {"loss_exchange": case["loss_exchange"]} if "loss_exchange" in case else {}
    kernels |= {} if case.get("fused", True) else {"activation": "eager"}
    if case.get("megatron", {}).get("moe_router_dtype"):
        kernels["router_weights"] = case["megatron"]["moe_router_dtype"]
    update["kernels"] = framework.kernels.model_copy(update=kernels)
    return framework.model_copy(update=update)


def setup_of(case: dict[str, Any], folder: Path) -> Setup:
    model = {**RECORDED["models"][case["model"]], "num_hidden_layers": case.get("layers", 4)}
    (folder / "config.json").write_text(json.dumps(model))
    job = {"precision": "bf16", "gpus": 1, "seq": 64, **case["job"]}
    if job.get("ep", 1) > 1 and "capacity_factor" not in job:
        job["expert_imbalance"] = 1.0
    framework = changed(catalog.load("frameworks", "megatron-core"), case)
    return resolve(Job(model=str(folder), gpu="h100-sxm", framework="megatron-core", **job), {"framework": framework})


def predicted(setup: Setup, stage: int) -> Counter[Key]:
    """Calls of a stage; of attention, which does not run with context parallelism there, none."""
    found: Counter[Key] = Counter()
    for row in (one.to_dict() for one in comm_of(setup).stages[stage]):
        if not row["purpose"].startswith("context parallel"):
            phase = "" if row["op"] == "send_recv" else row["phase"]
            size = 0 if row["purpose"] in BUCKETS else row["bytes_per_call"]
            found[row["op"], phase, row["group_size"], size] += row["calls"]
    return found


def bucket_bytes(setup: Setup, stage: int) -> float:
    """All that is reduced and gathered in buckets, whose sizes distsim knows on average."""
    return sum(row.calls * row.bytes_per_call for row in comm_of(setup).stages[stage] if row.purpose in BUCKETS)


@cases("steps")
def test_collectives(case: dict[str, Any], tmp_path: Path) -> None:
    setup, stage = setup_of(case, tmp_path), case.get("stage", 0)
    found, left = predicted(setup, stage), bucket_bytes(setup, stage)
    want: Counter[Key] = Counter()
    for op, phase, ranks, size, calls in case["calls"]:
        bucket = (op, phase, ranks, size) not in found and (op, phase, ranks, 0) in found
        left -= calls * size * bucket
        want[op, phase, ranks, 0 if bucket else size] += calls
    assert found == want
    assert abs(left) <= 0.005 * bucket_bytes(setup, stage)


@cases("states")
def test_states(case: dict[str, Any], tmp_path: Path) -> None:
    """To the byte, but for what buckets are filled up with."""
    found = memory_of(setup_of(case, tmp_path)).to_dict()["stages"][case.get("stage", 0)]["categories"]
    assert {name: found[name] for name in case["bytes"]} == pytest.approx(case["bytes"], rel=0.004)


def test_states_of_a_precision_aware_optimizer(tmp_path: Path) -> None:
    """Two moments of 2 bytes and 2 of the 4 of a master copy, and no fp32 gradients for the step: Transformer Engine's
    FusedAdam, which needs a GPU, as it reads."""
    job = {"gpus": 4, "zero": 1}
    plain, aware = (
        memory_of(setup_of({"model": "dense", "job": {**job, "precision": name}}, tmp_path)).to_dict()["stages"][0]
        for name in ("bf16", "bf16-precision-aware")
    )
    states, others = plain["categories"]["optimizer"], ("parameters", "gradients")
    assert aware["categories"]["optimizer"] == states / 2
    assert [aware["categories"][name] for name in others] == [plain["categories"][name] for name in others]
    (wide,), (narrow,) = ([m["temporaries"] for m in one["moments"] if m["moment"] == "optimizer step"]
                          for one in (plain, aware))  # fmt: skip
    assert (wide, narrow) == (states / 12 * 4, 0)


@cases("saved")
def test_saved_by_a_layer(case: dict[str, Any], tmp_path: Path) -> None:
    """But for indices of a few bytes a token; what makes latents' heads again keeps angles and rotated keys, too, which
    are 3% of so narrow a layer."""
    near = 0.035 if "mla_up_proj" in case["job"].get("recompute_modules", "") else 0.006
    found = memory_of(setup_of(case, tmp_path)).to_dict()["stages"][0]["saved"]["per_layer"]
    assert found == pytest.approx(case["layer"], rel=near)


@cases("held")
def test_held_by_a_stage_at_once(case: dict[str, Any], tmp_path: Path) -> None:
    """Passes in flight of 1F1B and interleaved 1F1B, of which one has logits; beside them are a loss's own numbers."""
    stage = memory_of(setup_of(case, tmp_path)).to_dict()["stages"][case["stage"]]
    saved = stage["saved"]
    held = stage["in_flight"] * (saved["layers"] + saved["embedding"]) + saved["head_and_loss"]
    assert held == pytest.approx(case["held"], rel=0.001)


@cases("modules")
def test_saved_by_a_module_of_multi_token_prediction(case: dict[str, Any], tmp_path: Path) -> None:
    """All that a step keeps with one, less what it keeps without."""
    totals = []
    for job in (case["job"], {name: value for name, value in case["job"].items() if name != "mtp"}):
        stage = memory_of(setup_of({**case, "job": job}, tmp_path)).to_dict()["stages"][0]
        totals.append(stage["saved"]["total"])
    assert totals[0] - totals[1] == pytest.approx(case["module"], rel=0.01)


@cases("sharded")
def test_megatron_fsdp(case: dict[str, Any], tmp_path: Path) -> None:
    """Gathers and reductions of layers and of all else, which are filled up by 1% in so small a network."""
    found: Counter[tuple[str, int, int]] = Counter()
    for row in comm_of(setup_of(case, tmp_path)).stages[0]:
        if row.role in ("gradients", "parameters") and row.group_size > 1:
            found[row.op, round(row.group_size), round(row.bytes_per_call)] += round(row.calls)
    left = Counter(found)
    for op, ranks, size, calls in case["calls"]:
        (key,) = (one for one in found if one[:2] == (op, ranks) and one[2] == pytest.approx(size, rel=0.02))
        left[key] -= calls
    assert not any(left.values())
