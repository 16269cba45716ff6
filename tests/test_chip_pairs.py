"""How well accelerators are compared: pairs of runs that differ in nothing else."""

from __future__ import annotations

import math

import pytest
from chip_pairs import chip_pairs_toml, errors

from distsim.engine.evidence import Replay
from distsim.interop.runs import Run


def _replay(measured: float, predicted: float, gpu: str, model: str = "m", source: str = "s", **cells: str) -> Replay:
    told = {"source": source, "model": model, "gpu": gpu, "n_gpus": "8", **cells}
    return Replay(Run(told, 1), measured_seconds=measured, predicted_seconds=predicted)


def test_the_fastest_of_a_job_on_each_accelerator_is_compared() -> None:
    runs = [_replay(1.0, 1.1, "a"), _replay(3.0, 4.0, "a"), _replay(2.0, 2.0, "b"), _replay(1.0, 1.0, "b", model="n")]
    found = errors(runs)
    assert found == {"s": [pytest.approx(math.log(1.1))]}
    found["t"] = [math.log(1.3)] * 5
    text = chip_pairs_toml(found, "runs.csv")
    assert "ratio_error = 0.20\npairs = 6\nsources = 2" in text
