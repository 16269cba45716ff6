"""Blank cells of measured runs that notes fill."""

from __future__ import annotations

import pytest

from distsim.interop.runs import Run
from distsim.interop.runs.blanks import filled


@pytest.mark.parametrize(
    ("notes", "cell"),
    [
        ("full activation recomputation", "full"), ("H100, full recompute; 3 runs", "full"),
        ("--recompute-granularity full", "full"), ("recompute_granularity=full", "full"),
        ("gradient_checkpointing=True, packed", "full"), ("act_ckpt_layers=10", "block:10"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 4", "block:4"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full"),
        ("no full recompute", None), ("full recompute of [6,3,2,3] layers per stage", None),
        ("full recompute was slower", None), ("gradient checkpointing not said", None),
        ("32B config: activation_checkpointing true", None), ("recompute_granularity=selective", None),
        ("activation checkpointing as the default", None), ("instead of full recompute", None),
    ],
)  # fmt: skip
def test_recomputation(notes: str, cell: str | None) -> None:
    run = Run({"notes": notes}, 2)
    assert filled(run).text("recompute") == cell
    assert filled(Run({"notes": notes, "recompute": "none"}, 2)).text("recompute") == "none"


def test_chunks() -> None:
    assert filled(Run({"notes": "TP=4 PP=4 VP=2", "pp": "4"}, 2)).text("vpp") == "2"
    assert filled(Run({"notes": "virtual_pipeline_model_parallel_size=5", "pp": "4"}, 2)).text("vpp") == "5"
    for cells in ({"notes": "VP=2"}, {"notes": "VP of sales", "pp": "4"}):
        assert filled(Run(cells, 2)).text("vpp") is None
