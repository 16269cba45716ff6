"""Traffic held against steps of transformers' Trainer and of composer (tests/oracles/trainer.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import distsim

RECORDED = json.loads((Path(__file__).parent / "oracles" / "trainer.json").read_text())
STEPS: dict[str, dict[str, Any]] = RECORDED["steps"]
FETCHED = [name for name in STEPS if "ZeRO 3" in name]
NORM_APART = "FSDP2, adapters behind checkpoints"
"""Whose final norm accelerate does not find inside of peft's model, so that it is a unit of its own."""
Key = tuple[str, str, int, str, int]


def _calls(case: dict[str, Any], folder: Path, **more: Any) -> Counter[Key]:
    (folder / "config.json").write_text(json.dumps(RECORDED["models"][case["model"]]))
    found: Counter[Key] = Counter()
    for row in distsim.comm(str(folder), gpu="h100-sxm", **case["job"], **more).to_dict()["collectives"]:
        found[row["op"], row["phase"], row["group_size"], row["dtype"], row["bytes_per_call"]] += row["calls"]
    return found


def _told(case: dict[str, Any]) -> Counter[Key]:
    return Counter({tuple(key): calls for *key, calls in case["calls"]})


@pytest.mark.parametrize("name", [name for name in STEPS if name not in (*FETCHED, NORM_APART)])
def test_calls_of_a_step(name: str, tmp_path: Path) -> None:
    """Units of layers, of both ends, of adapters: how often each is gathered, and in what it is reduced."""
    assert _calls(STEPS[name], tmp_path) == _told(STEPS[name])


def test_bytes_of_a_norm_that_is_not_found(tmp_path: Path) -> None:
    case = STEPS[NORM_APART]
    sums = [Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()]
    for total, calls in zip(sums, (_calls(case, tmp_path), _told(case)), strict=True):
        for (op, phase, _, dtype, size), times in calls.items():
            total[op, phase, dtype] += size * times
    assert sums[0] == sums[1]


@pytest.mark.parametrize("name", FETCHED)
def test_frozen_layers_are_fetched_for_both_passes_of_backward(name: str, tmp_path: Path) -> None:
    """By DeepSpeed, unless checkpoints are reentrant: all of a layer but its last module."""
    case = STEPS[name]
    holds = "output" if "reentrant" in name else "nothing"
    (tmp_path / "own.toml").write_text(
        f"""based_on = "deepspeed"
        [buffers]
        gathered_elements = {case["live"]}
        [kernels]
        recompute_holds = "{holds}"
        [source]
        other = "the recorded configuration"
        checked = 2026-11-30"""
    )
    both = (_calls(case, tmp_path, framework=str(tmp_path / "own.toml")), _told(case))
    found, told = (sum(key[4] * times for key, times in one.items() if key[0] == "all_gather") for one in both)
    assert found == pytest.approx(told, rel=0.025)


@pytest.mark.parametrize(("zero", "told"), [(0, True), (1, False)])
def test_wide_sums_without_zero_are_told(zero: int, told: bool) -> None:
    """DeepSpeed raises NotImplementedError for gradients that are added up in fp32 beside bf16 weights then."""
    job = {"gpus": 8, "framework": "deepspeed", "precision": "bf16-fp32-grads", "zero": zero}
    notes = distsim.comm("llama-7b", **job).setup.notes
    assert any("refuses gradients wider than weights" in note for note in notes) is told


@pytest.mark.parametrize("name", RECORDED["backward"])
def test_backward_of_flat_gradients(name: str, tmp_path: Path) -> None:
    """FSDP1 joins a unit's gradients in a new flat one, beside those that wait or before it reduces them: peaks of so
    short a sequence are theirs, in the last layer's backward or, of all that belongs to no layer, at the end."""
    case = RECORDED["backward"][name]
    (tmp_path / "config.json").write_text(json.dumps(RECORDED["models"][case["model"]]))
    moments = distsim.memory(str(tmp_path), gpu="h100-sxm", **case["job"]).to_dict()["stages"][0]["moments"]
    most = max(one["bytes"] for one in moments if "backward" in one["moment"])
    assert case["bytes"] == pytest.approx(most, rel=0.055)
