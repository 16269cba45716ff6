"""Traffic and memory held against steps of DeepSpeed itself (tests/oracles/deepspeed.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import distsim
from distsim.errors import DistsimError

RECORDED = json.loads((Path(__file__).parent / "oracles" / "deepspeed.json").read_text())
STEPS: dict[str, dict[str, Any]] = RECORDED["steps"]
SHARDED = [name for name in STEPS if "ZeRO 3" in name]
WAITS_WHOLE = "llama ZeRO 1 summed in fp32"
"""BF16_Optimizer, beside whose sums whole gradients in bf16 wait."""


def _job(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "config.json").write_text(json.dumps(RECORDED["models"][case["model"]]))
    (folder / "small.toml").write_text(
        f"""based_on = "deepspeed"
        [traffic]
        bucket_elements = {case["bucket"]}
        [buffers]
        gradient_bucket_elements = {case["bucket"]}
        gathered_elements = {case.get("live", 10**9)}
        step_elements = {case.get("step", 10**9)}
        [source]
        other = "the recorded configuration"
        checked = 2026-11-30"""
    )
    return {"model": str(folder), "gpu": "h100-sxm", "framework": str(folder / "small.toml"), **case["job"]}


@pytest.mark.parametrize("name", STEPS)
def test_bytes_of_gradients_and_parameters(name: str, tmp_path: Path) -> None:
    """By operation, phase, ranks and format; not the calls that they are in, nor single numbers."""
    case = STEPS[name]
    found: Counter[tuple[str, str, int, str]] = Counter()
    for row in distsim.comm(**_job(case, tmp_path)).to_dict()["collectives"]:
        found[row["op"], row["phase"], row["group_size"], row["dtype"]] += row["calls"] * row["bytes_per_call"]
    told = {(op, phase, ranks, dtype): size for op, phase, ranks, dtype, _, size in case["calls"] if size > 40}
    gathers = {key for key in told if key[0] == "all_gather" and key[1] != "step"}
    assert {key: size for key, size in found.items() if size > 40 and key not in gathers} == {
        key: size for key, size in told.items() if key not in gathers
    }
    if gathers:  # some of what backward needs is fetched before forward has ended
        assert sum(found[key] for key in gathers) == pytest.approx(sum(told[key] for key in gathers), rel=0.09)


@pytest.mark.parametrize("name", [name for name in STEPS if name != WAITS_WHOLE])
def test_bytes_at_the_optimizer_step(name: str, tmp_path: Path) -> None:
    """What lies between steps, and the peak of the update (of ZeRO 1 and 2 also a norm in fp64 of one tensor). Phases
    of steps that only accumulate are recorded with it."""
    case = STEPS[name]
    stage = distsim.memory(**_job(case, tmp_path)).to_dict()["stages"][0]
    held = stage["categories"]["parameters"] + stage["categories"]["optimizer"]
    if case["job"]["zero"] == 3:
        held += stage["categories"]["gradients"] + 2 * min(case["bucket"], case["parameters"])
    assert case["held"] == pytest.approx(held, rel=1e-3)
    (step,) = [one["bytes"] for one in stage["moments"] if one["moment"] == "optimizer step"]
    waits = case["job"]["zero"] == 1 and case["job"]["global_batch"] > case["job"]["gpus"]
    assert waits or case["peaks"]["step"] == pytest.approx(step, rel=0.06)


@pytest.mark.parametrize("name", [name for name in STEPS if name not in (*SHARDED, WAITS_WHOLE)])
def test_gradients_grow_in_the_first_backward(name: str, tmp_path: Path) -> None:
    """At the loss of a step's only micro-batch there are none, and no buckets, which backward makes."""
    case = STEPS[name]
    stage = distsim.memory(**_job(case, tmp_path)).to_dict()["stages"][0]
    (loss,) = [one["bytes"] for one in stage["moments"] if one["moment"] == "loss"]
    whole = case["parameters"] if case["job"]["zero"] == 0 else 2 * case["bucket"]
    buckets = 2 * min(2 * case["bucket"], whole)
    assert case["peaks"]["forward"] == pytest.approx(loss - buckets, rel=0.04)


def test_sums_of_zero_1_stand_beside_narrow_gradients(tmp_path: Path) -> None:
    """Which a recipe with both has: two, six and an eighth of twelve bytes."""
    case = STEPS[WAITS_WHOLE]
    stage = distsim.memory(**{**_job(case, tmp_path), "precision": "bf16-two-gradients"}).to_dict()["stages"][0]
    (step,) = [one["bytes"] for one in stage["moments"] if one["moment"] == "optimizer step"]
    assert case["peaks"]["step"] == pytest.approx(step, rel=1e-3) == pytest.approx(9.5 * case["parameters"], rel=1e-3)


@pytest.mark.parametrize("name", SHARDED)
def test_bytes_of_backward(name: str, tmp_path: Path) -> None:
    """Gathered parameters, the bucket of gradients and what joins it; activations of so short a sequence are little."""
    moments = distsim.memory(**_job(STEPS[name], tmp_path)).to_dict()["stages"][0]["moments"]
    most = max(one["bytes"] for one in moments if "backward" in one["moment"])
    assert STEPS[name]["peaks"]["backward"] == pytest.approx(most, rel=0.1)


@pytest.mark.parametrize("name", SHARDED)
def test_gathered_parameters_are_limited(name: str, tmp_path: Path) -> None:
    """Not by layers: as many as are allowed, or all of a small model's; the last tensor may go beyond."""
    case = STEPS[name]
    report = distsim.memory(**_job(case, tmp_path))
    (figure,) = [one for one in report.stages[0].figures if one.label == "gathered parameters"]
    most = max(case["gathered"].values())
    assert most / 1.45 < figure.value / 2 <= most
    assert figure.value == 2 * min(case["parameters"], case["live"])


@pytest.mark.parametrize("case", RECORDED["buckets"], ids=lambda case: f"ZeRO {case['job']['zero']}")
def test_buckets_have_their_full_size(case: dict[str, Any], tmp_path: Path) -> None:
    """Also beyond the model's: five million parameters, buckets of one and twenty. Without ``overlap_comm``, which is
    off unless it is said, ZeRO 1 has one of two."""
    told = []
    for bucket in case["buckets"]:
        report = distsim.memory(**_job({**case, "bucket": bucket}, tmp_path))
        told += [one.value for one in report.stages[0].figures if one.label == "gradient buckets"]
    each = case["backward"][1] - case["backward"][0]
    assert told[1] - told[0] == each * (2 if case["job"]["zero"] == 1 else 1)


@pytest.mark.parametrize("case", RECORDED["sub_groups"], ids=lambda case: str(case["job"]["offload_fraction"]))
def test_whole_sub_groups_leave(case: dict[str, Any], tmp_path: Path) -> None:
    """The first stay, so many as int((1 - ratio) * groups) is, of 16 bytes a parameter: states and an fp32 gradient.
    Each ends with the tensor that makes it large enough."""
    ranks, shard = case["job"]["gpus"], sum(case["groups"])
    stay = shard - sum(case["groups"][index] for index in case["on_host"])
    longer = (len(case["groups"]) - len(case["on_host"])) * 640 * 256 / ranks
    report = distsim.memory(**_job(case, tmp_path))
    held = report.stages[0].states
    assert 16 * stay == pytest.approx(float(held.optimizer + held.gradients), abs=16 * longer / 2)
    assert report.node_bytes == pytest.approx(ranks * (18 * shard - float(held.optimizer + held.gradients)), rel=1e-3)


@pytest.mark.parametrize(
    "case", RECORDED["attention"], ids=lambda case: f"{case['ranks']} ranks, {case['kv_heads']} keys"
)
def test_ulysses_trades_heads_for_tokens(case: dict[str, Any], tmp_path: Path) -> None:
    """DistributedAttention with eight heads of 16 and 64 tokens."""
    model = {**RECORDED["models"]["llama"], "hidden_size": 128, "num_attention_heads": 8, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({**model, "num_key_value_heads": case["kv_heads"]}))
    job = {"gpu": "h100-sxm", "gpus": 8, "cp": case["ranks"], "seq": 64, "framework": "deepspeed"}
    found: Counter[tuple[str, str, int, int]] = Counter()
    for row in distsim.comm(str(tmp_path), **job).to_dict()["collectives"]:
        if "context" in row["purpose"]:
            found[row["op"], row["phase"], row["group_size"], row["bytes_per_call"]] += row["calls"]
    assert found == Counter({tuple(key): calls for *key, calls in case["calls"]})


@pytest.mark.parametrize("case", RECORDED["experts"], ids=lambda case: f"ep {case['ep']} top {case['top_k']}")
def test_experts_of_its_own_layer(case: dict[str, Any], tmp_path: Path) -> None:
    """deepspeed.moe.layer.MoE at a capacity of one: eight experts for 64 tokens of width 64, gradients of experts among
    the ranks that hold the same ones. The model around them differs, whose bytes are left out."""
    model = {**RECORDED["models"]["mixtral"], "num_local_experts": 8, "num_experts_per_tok": case["top_k"]}
    (tmp_path / "config.json").write_text(json.dumps({**model, "num_hidden_layers": 1}))
    job = {"gpu": "h100-sxm", "gpus": 8, "ep": case["ep"], "zero": case["zero"], "seq": 64, "framework": "deepspeed"}
    found: Counter[tuple[str, str, int, int]] = Counter()
    for row in distsim.comm(str(tmp_path), **job, capacity_factor=1.0).to_dict()["collectives"]:
        if row["purpose"] != "gradient norm":
            size = row["bytes_per_call"] if row["op"] == "all_to_all" else 0
            found[row["op"], row["phase"], row["group_size"], size] += row["calls"]
    told: Counter[tuple[str, str, int, int]] = Counter()
    for op, phase, ranks, size, calls in case["calls"]:
        told[op, phase, ranks, size if op == "all_to_all" else 0] += calls
    assert found == told


def test_groups_of_shards_are_refused_with_where_that_is_written() -> None:
    with pytest.raises(DistsimError, match="not over groups of 4") as raised:
        distsim.step("llama-7b", gpus=8, zero=3, zero_group=4, framework="deepspeed")
    assert "mics_shard_size is refused" in str(raised.value)
