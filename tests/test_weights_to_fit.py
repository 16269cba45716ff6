"""Weights that nobody names the format of: bf16 where fp32 ones would not have fitted."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.interop.runs import Run

NARROW, WIDE = "pure-bf16", "amp-bf16"
CELLS = {
    "id": "new", "source": "somebody notes", "year": "2026", "model": "llama-3.1-8b", "gpu": "h200-sxm", "n_gpus": "8",
    "seq_len": "2048", "micro_batch": "1", "global_batch": "8", "zero_stage": "0", "precision": "bf16",
    "framework": "torch-ddp", "recompute": "full", "attention": "flash", "step_time_s": "0.6",
}  # fmt: skip


def _replay(**cells: str) -> tuple[Replay, Any]:
    found = replay(Run({**CELLS, **cells}, 1), strange=True)
    assert found.setup is not None
    return found, found.setup.precision.name


def test_eight_billion_parameters_of_sixteen_bytes_do_not_fit_beside_their_gradients() -> None:
    found, precision = _replay()
    assert precision == NARROW
    assert "fp32 weights would not fit" in found.assumed
    assert found.predicted_peak is not None and found.setup is not None
    assert found.predicted_peak < found.setup.accelerator.capacity


@pytest.mark.parametrize(
    "cells",
    [{"model": "llama-3.2-1b"}, {"precision": WIDE}, {"notes": "fp32 weights"}, {"gpu": "b300-sxm"},
     {"zero_stage": "1", "framework": "deepspeed"}],
)  # fmt: skip
def test_all_others_stay_as_their_software_has_them(cells: dict[str, str]) -> None:
    found, precision = _replay(**cells)
    assert precision != NARROW and "fp32 weights would not fit" not in found.assumed


def test_activations_that_do_not_fit_say_nothing_of_weights() -> None:
    _, precision = _replay(model="gpt2", micro_batch="4096", global_batch="32768", recompute="none")
    assert precision == WIDE
