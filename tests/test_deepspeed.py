"""Traffic and memory held against steps of DeepSpeed itself (tests/oracles/deepspeed.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import distsim

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


@pytest.mark.parametrize("name", SHARDED)
def test_gathered_parameters_are_limited(name: str, tmp_path: Path) -> None:
    """Not by layers: as many as are allowed, or all of a small model's; the last tensor may go beyond."""
    case = STEPS[name]
    report = distsim.memory(**_job(case, tmp_path))
    (figure,) = [one for one in report.stages[0].figures if one.label == "gathered parameters"]
    most = max(case["gathered"].values())
    assert most / 1.45 < figure.value / 2 <= most
    assert figure.value == 2 * min(case["parameters"], case["live"])
