"""What a stage of ZeRO in a row means where pipeline stages gather parameters once a step."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import setup_of
from distsim.engine.step import seconds_of
from distsim.interop.runs import Run

ROW = {"id": "x", "year": "2024", "model": "llama-2-13b", "gpu": "ascend-910b", "n_gpus": "32", "tp": "4",
       "framework": "mindformers", "seq_len": "4096", "micro_batch": "1", "precision": "fp16",
       "recompute": "none"}  # fmt: skip


@pytest.mark.parametrize(("pp", "zero"), [("4", 1), ("1", 3)])
def test_parameters_of_a_pipeline_are_gathered_once(pp: str, zero: int) -> None:
    assert setup_of(Run({**ROW, "pp": pp, "global_batch": "64", "zero_stage": "3"}, 1)).layout.zero == zero


def test_micro_batches_add_no_gathers() -> None:
    """Replicas over the network cost a pipeline of MindSpore's next to nothing: per device, Code Llama 34B with two of
    them went as fast as Yi 34B with one (667 and 660 tokens/s in the table of mindspore-ai/docs)."""
    alone = {**ROW, "n_gpus": "16", "pp": "4", "global_batch": "64", "zero_stage": "3"}
    both = {**alone, "n_gpus": "32", "global_batch": "128"}
    assert seconds_of(setup_of(Run(both, 1))) < 1.05 * seconds_of(setup_of(Run(alone, 1)))
