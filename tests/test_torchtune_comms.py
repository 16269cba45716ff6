"""Traffic held against the collectives of torchtune's own sharding (tests/oracles/torch_comms.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import distsim

RECORDED = json.loads((Path(__file__).parent / "oracles" / "torchtune_comms.json").read_text())
OWN = """based_on = "torchtune"
[traffic]
ends_apart = { llama = 512 }
[source]
other = "a model cut down"
checked = 2026-11-30
"""


@pytest.mark.parametrize("name", RECORDED["steps"])
def test_units_of_a_step(name: str, tmp_path: Path) -> None:
    """A loss in chunks calls an output layer that is a unit of its own for each of eight chunks."""
    case = RECORDED["steps"][name]
    (tmp_path / "config.json").write_text(json.dumps(RECORDED["models"][case["model"]]))
    (tmp_path / "own.toml").write_text(OWN)
    framework = str(tmp_path / "own.toml") if case["apart"] else "torchtune"
    report = distsim.comm(str(tmp_path), gpu="h100-sxm", seq=32, framework=framework, **case["job"])
    found: Counter[tuple[str, str, int, int]] = Counter()
    for row in report.to_dict()["collectives"]:
        found[row["op"], row["phase"], row["group_size"], row["bytes_per_call"]] += row["calls"]
    assert found == Counter({tuple(key): calls for *key, calls in case["calls"]})


@pytest.mark.parametrize(("model", "calls"), [("llama-3-8b", 9), ("llama-2-7b", 1), ("qwen2.5-7b", 1)])
def test_only_recipes_of_llama_3_shard_their_ends_apart(model: str, calls: int) -> None:
    report = distsim.comm(model, gpu="h100-sxm", gpus=8, seq=2048, framework="torchtune", loss="chunked")
    layers = report.setup.model.layers
    rows = [row for row in report.collectives if row.phase == "forward" and row.calls != layers]
    assert max(row.calls for row in rows) == calls
