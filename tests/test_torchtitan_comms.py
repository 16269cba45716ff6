"""Traffic held against the collectives that torchtitan's own layers issue (tests/oracles/torch_comms.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import distsim

RECORDED = json.loads((Path(__file__).parent / "oracles" / "torchtitan_comms.json").read_text())


@pytest.mark.parametrize("name", RECORDED["steps"])
def test_collectives_of_experts_and_latents(name: str, tmp_path: Path) -> None:
    """Of layers: embedding and head are units of their own there, one here; and the recorded step has no loss."""
    case, config = RECORDED["steps"][name], RECORDED["models"][RECORDED["steps"][name]["model"]]
    (tmp_path / "config.json").write_text(json.dumps(config))
    job = {**case["job"], "loss_parallel": True, "gpu": "h100-sxm", "framework": "torchtitan"}
    report = distsim.comm(str(tmp_path), **job)
    root = 2 * config["vocab_size"] * config["hidden_size"] / job["tp"] + config["hidden_size"]
    sizes = {2 * root, 4 * root, 4 * root / report.setup.layout.zero_group}
    found: Counter[tuple[str, str, int, int]] = Counter()
    for row in report.to_dict()["collectives"]:
        if row["bytes_per_call"] not in sizes and row["purpose"] != "tensor parallel loss":
            found[row["op"], row["phase"], row["group_size"], row["bytes_per_call"]] += row["calls"]
    assert found == Counter({tuple(key): calls for *key, calls in case["calls"]})
