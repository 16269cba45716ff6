"""Measured runs whose whole model is one unit of FSDP1."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import Replay, replay
from distsim.engine.memory import memory_of
from distsim.engine.traffic import comm_of
from distsim.interop.runs import Run
from distsim.interop.runs.sharding import wraps_nothing

ROW = {"id": "a", "model": "llama-2-7b", "gpu": "a100-sxm4-80gb", "n_gpus": "4", "seq_len": "512",
       "fsdp_kind": "FSDP1 FULL_SHARD", "micro_batch": "4", "global_batch": "16", "precision": "bf16-true",
       "framework": "litgpt", "step_time_s": "2"}  # fmt: skip
PARAMETERS = 6_738_415_616
ALONE = "FSDPStrategy FULL_SHARD without auto_wrap_policy"


def _replay(notes: str) -> Replay:
    return replay(Run({**ROW, "notes": notes}, 2))


@pytest.mark.parametrize(
    ("notes", "whole"),
    [
        (ALONE, True), ("FSDP(model) without a wrap policy", True), ("the whole model as one unit", True),
        ("no wrap policy", True), ("no auto-wrapping policy", True), ("wrapped per decoder layer", False),
        ("min_params 4e8 (smaller models: one unit)", False), ("its wrap policy is of layers", False),
    ],
)  # fmt: skip
def test_what_notes_say_of_it(notes: str, whole: bool) -> None:
    assert wraps_nothing(Run({"notes": notes}, 2)) == whole


def test_it_is_gathered_and_reduced_once_and_all_gradients_are_joined() -> None:
    """torch distributed/fsdp: the root's parameters stay to backward (_runtime_utils.py, _post_forward), views of a
    flat parameter have gradients that autograd joins (_flat_param.py)."""
    one = _replay(ALONE).setup
    assert one is not None
    rows = [row for row in comm_of(one).stages[0] if row.purpose in ("parameters", "gradients")]
    assert [(row.op, row.calls) for row in rows] == [("all_gather", 1), ("reduce_scatter", 1)]
    assert all(row.bytes_per_call == pytest.approx(2 * PARAMETERS, rel=1e-6) for row in rows)
    worst = memory_of(one).worst
    shares, whole = (2 + 4) / 4, 3 * 2  # weights and moments; gathered, gradients apart, joined
    assert worst.peak_moment == "embedding backward"
    assert worst.counted("allocated") == pytest.approx((shares + whole) * PARAMETERS, rel=0.02)
