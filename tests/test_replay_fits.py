"""What replays take for granted of runs that would not have fitted as their cells say."""

from __future__ import annotations

from typing import Any

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.interop.runs import Run

LONG = {
    "id": "a", "model": "qwen3-8b", "gpu": "h100-sxm", "n_gpus": "8", "seq_len": "32768", "micro_batch": "1",
    "global_batch": "8", "dp": "8", "zero_stage": "3", "precision": "bf16", "recompute": "full", "attention": "flash",
    "framework": "fsdp", "step_time_s": "10",
}  # fmt: skip
TAKEN = "logits would not fit: assumed a loss of a few tokens at a time"


def _replay(**cells: Any) -> Replay:
    found = replay(Run({**LONG, **cells}, 1))
    assert found.setup is not None
    return found


def test_logits_that_would_not_fit_are_not_whole() -> None:
    """32,768 tokens of 151,936 words in fp32 are 20 GB, of which an eager loss has several."""
    long, short = _replay(), _replay(seq_len="4096")
    assert long.setup is not None and short.setup is not None
    assert long.setup.kernels.loss == "with-head" and TAKEN in long.assumed
    assert short.setup.kernels.loss == "eager" and TAKEN not in short.assumed
    assert long.predicted_peak is not None and long.predicted_peak < long.setup.accelerator.capacity


@pytest.mark.parametrize(
    "cells",
    [{"framework": "megatron-core"},
     {"model": "bert-large-uncased", "seq_len": "512", "micro_batch": "400", "global_batch": ""},
     {"recompute": "none", "seq_len": "262144"}],
    ids=str,
)  # fmt: skip
def test_others_are_left_as_they_are(cells: dict[str, Any]) -> None:
    """Software without such a switch, encoders, and what would not fit with it either."""
    assert TAKEN not in _replay(**cells).assumed
