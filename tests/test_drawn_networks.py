"""What torch keeps of configurations drawn at random: encoders, two stacks, mixtures, hybrids, dropout, tied or not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from recordings import PRECISION, recorded_peak, recorded_stage

from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.models import load_model
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.interop.huggingface import read_config
from distsim.layers.ledger import distinct_saved
from distsim.layers.network import layer_kind
from distsim.specs.job import Job

# One step of transformers 5.23's modules on torch 2.13 fake tensors, recorded as tests/test_saved_tensors.py says, with
# casts of weights known by what is cast and not by their shape, and silu_backward as one kernel, as it is on a GPU.
# Peaks that fake tensors or the tracker make themselves are left out (0). Counts are of modules on the meta device.
with gzip.open(Path(__file__).parent / "oracles" / "torch_drawn.json.gz", "rt") as file:
    DRAWN = json.load(file)


def _setup(row: dict[str, Any]) -> Setup:
    model, batch = read_config(row["config"]).model, row["micro_batch"]
    options: dict[str, Any] = {} if model.patches else {"seq": row["seq"]}
    if row["decoder_seq"]:
        options["decoder_seq"] = row["decoder_seq"]
    return resolve(
        Job(
            model=model, gpu="h200-sxm", gpus=1, framework="huggingface", micro_batch=batch, global_batch=batch,
            recompute=row["recompute"], attention="eager" if row["attention"] == "eager" else "flash",
            precision=PRECISION[row["dtype"]], **options,
        )
    )  # fmt: skip


@pytest.mark.parametrize("row", DRAWN["memory"], ids=lambda row: row["case"])
def test_what_torch_keeps(row: dict[str, Any]) -> None:
    """All that is kept to 0.1%, a layer of each kind to 0.3% (the first that rotates keeps tables for all), weights
    to what newer routers keep in fp32, peaks to 0.5%."""
    setup = _setup(row)
    stage = recorded_stage(setup)
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    assert saved.total == pytest.approx(row["saved_total"], rel=1e-3)
    assert held.parameters == pytest.approx(row["static_param"], rel=3e-4)
    if row["peak_total"]:
        assert recorded_peak(setup, stage, held, saved) == pytest.approx(row["peak_total"], rel=5e-3)
    if row["recompute"] == "none" and not setup.model.text and not row["decoder_seq"]:
        for block, _ in stage.layers:
            kept = sum(distinct_saved(block.operations).values())
            layers = [size for at, size in enumerate(row["saved_layers"]) if layer_kind(setup.model, at) == block.name]
            assert min(abs(kept / size - 1) for size in layers) < (3e-3 if len(layers) > 1 else 2e-2)


@pytest.mark.parametrize("row", DRAWN["counts"], ids=lambda row: str(row["parameters"]))
def test_counts(row: dict[str, Any]) -> None:
    """Nemotron-H's output layer has its own matrix, and its attention no biases, whatever a file says."""
    assert load_model(read_config(row["config"]).model).parameters == row["parameters"]
