"""Steps of 85 models in many settings at once: odd lengths, precisions, recomputation, updates, adapters.

The oracle: transformers 5.24 models at full width (most with a few layers) on torch 2.13 fake tensors, recorded as
tests/test_saved_tensors.py says, with CUDA's own backward of SiLU and without the dense masks that fake tensors get
where a model makes a mask of ones. Settings were drawn at random; of 420 cases those are kept whose figures changed
when the ledger was mended by them, and one of each other model.
"""

from __future__ import annotations

import csv
import gzip
import json
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from recordings import PRECISION, recorded_peak, recorded_stage

from distsim.engine.figures import Figures
from distsim.engine.footprint.saved import saved_of
from distsim.engine.footprint.states import states
from distsim.engine.jobs.module_buffers import module_buffers
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.interop.huggingface.reader import read_config
from distsim.specs.job import Job
from distsim.specs.model import Model

ORACLES = Path(__file__).parent / "oracles"
ROWS = list(csv.DictReader((ORACLES / "torch_steps.csv").open()))
UPDATES = {"sgd": "sgd", "sgdm": "momentum"}
IN_LISTS = ("adam", "adamw", "adafactor")
"""Updates that differ by whether torch runs them over lists of tensors (foreach), one by one or fused."""
SAVED, PEAK = 2e-3, 0.01
LOOSE = {"t5-base-24": 0.02}
"""T5's gradients of what its encoder gave pile up beside the first layer's in 16 bits."""


@lru_cache
def _models() -> dict[str, Any]:
    with gzip.open(ORACLES / "torch_steps_configs.json.gz", "rt") as file:
        configs: dict[str, Any] = json.load(file)
    return configs


def _model(row: dict[str, str]) -> Model:
    return read_config(_models()[row["model"]]).model


def _setup(row: dict[str, str]) -> Setup:
    batch, optimizer = int(row["micro_batch"]), UPDATES.get(row["optimizer"], row["optimizer"])
    if optimizer in IN_LISTS and row["opt_impl"] != "fused":
        usual = (row["optimizer"], row["opt_impl"]) == ("adafactor", "forloop")
        optimizer = optimizer if usual else f"{optimizer}-{row['opt_impl']}"
    options: dict[str, Any] = {"decoder_seq": int(row["dec_seq"])} if row["dec_seq"] else {}
    if row["lora"]:
        rank, _, targets = row["lora"].removeprefix("r=").partition(" ")
        options |= {"lora_rank": int(rank), "lora_targets": targets.replace("_proj", "").replace("+", ",")}
    if row["recompute"] == "layer2":
        options["recompute_layers"] = (int(row["layers"]) + 1) // 2
    return resolve(
        Job(
            model=_model(row), gpu="h100-sxm", gpus=1, framework="huggingface", seq=int(row["seq"]), micro_batch=batch,
            global_batch=batch * int(row["grad_accum"]), attention="eager" if row["attn_impl"] == "eager" else "flash",
            precision=PRECISION[row["dtype_scheme"]], optimizer=optimizer,
            recompute="none" if row["recompute"] == "none" else "full", **options,
        )
    )  # fmt: skip


def _errors(row: dict[str, str]) -> tuple[float, float, float]:
    """Of saved bytes, of parameters, and of the peak."""
    setup = _setup(row)
    stage = recorded_stage(setup)
    saved, held = saved_of(setup, stage), states(setup, stage.parameters, Figures())
    peak = recorded_peak(setup, stage, held, saved)
    peak += sum(size for _, _, size in module_buffers(setup))
    told = (int(row["saved_total"]), int(row["static_param"]), int(row["peak_total"]))
    found = (saved.total, held.parameters, peak)
    return tuple(float(one / other - 1) for one, other in zip(found, told, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_a_step(row: dict[str, str]) -> None:
    saved, parameters, peak = _errors(row)
    assert abs(saved) < SAVED
    assert abs(parameters) < 4e-4  # newer routers' weights stay in fp32
    assert abs(peak) < LOOSE.get(row["model"], PEAK)


def test_most_are_exact() -> None:
    errors = [_errors(row) for row in ROWS]
    assert statistics.median(abs(saved) for saved, _, _ in errors) < 2e-6
    assert statistics.median(abs(peak) for _, _, peak in errors) < 2e-5
