"""One layer by itself (Korthikanti et al. 2022, table 4): what a second layer adds to the passes of a step."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.engine.fitting.runs import examples_of
from distsim.interop.runs import Run

ROW = {"id": "layer", "source": "Korthikanti", "year": 2022, "model": "GPT 22B (one layer)", "family": "gpt",
       "layers": 1, "hidden": 6144, "heads": 64, "kv_heads": 64, "head_dim": 96, "ffn_hidden": 24576, "gated_mlp": 0,
       "seq_len": 2048, "gpu": "a100-sxm4-80gb", "n_gpus": 8, "gpus_per_node": 8, "tp": 8, "pp": 1, "dp": 1,
       "sequence_parallel": 0, "micro_batch": 4, "precision": "fp16", "recompute": "none",
       "framework": "megatron-lm"}  # fmt: skip


def _run(**cells: Any) -> Run:
    return Run({name: str(value) for name, value in {**ROW, **cells}.items()}, 2)


def _replay(**cells: Any) -> Replay:
    found = replay(_run(**cells))
    assert not found.reason
    return found


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        ({}, 0.0196),
        ({"sequence_parallel": 1}, 0.0190),
        ({"sequence_parallel": 1, "recompute": "selective"}, 0.0203),
    ],
    ids=["whole sequences", "sequence parallel", "and selective"],
)
def test_a_layer_takes_what_was_measured(cells: dict[str, Any], seconds: float) -> None:
    found = _replay(**cells, step_time_s=seconds)
    assert found.error == pytest.approx(0, abs=0.05) and found.covered
    assert "a single layer" in found.assumed and found.predicted_peak is None


def test_words_and_optimizer_are_no_part_of_it() -> None:
    """A training step of the same layer with its words takes longer, and more with a costlier optimizer."""
    alone = _replay().predicted_seconds
    steps = [_replay(vocab=51200, optimizer=name).predicted_seconds for name in ("sgd", "adam")]
    assert alone is not None and steps[0] is not None and steps[1] is not None
    assert alone < steps[0] < steps[1]
    assert _replay(optimizer="sgd").predicted_seconds == pytest.approx(alone)


def test_nothing_is_fitted_to_it() -> None:
    examples, reasons = examples_of([_run(step_time_s=0.02)])
    assert not examples and any("a single layer" in reason for reason in reasons)
