"""Traffic held against steps of nanotron's own layers, accumulator and optimizer (tests/oracles/nanotron.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import distsim

RECORDED = json.loads((Path(__file__).parent / "oracles" / "nanotron.json").read_text())


@pytest.mark.parametrize("name", RECORDED["steps"])
def test_calls_of_a_step(name: str, tmp_path: Path) -> None:
    """Of release 0.4, whose products of rows gather the gradient of their input once too often under reduce-scatter."""
    case = RECORDED["steps"][name]
    config = RECORDED["models"][case["model"]]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found: Counter[tuple[str, str, int, str, int]] = Counter()
    report = distsim.comm(str(tmp_path), gpu="h100-sxm", framework="nanotron", **case["job"])
    for row in report.to_dict()["collectives"]:
        found[row["op"], row["phase"], row["group_size"], row["dtype"], row["bytes_per_call"]] += row["calls"]
    if case["job"].get("sequence_parallel"):
        for width in (config["hidden_size"], config["intermediate_size"]):
            gathered = case["job"]["seq"] * width / case["job"]["tp"] * 2
            found["all_gather", "backward", case["job"]["tp"], "bf16", gathered] += config["num_hidden_layers"]
    assert found == Counter({tuple(key): calls for *key, calls in case["calls"]})
