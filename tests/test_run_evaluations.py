"""Evaluations inside the time that was measured: what notes say of them, and what they cost."""

from __future__ import annotations

import pytest

from distsim.engine.evidence import replay
from distsim.engine.runs.setup import setup_of
from distsim.interop.runs import Run
from distsim.interop.runs.evaluation import Evaluation, evaluation_said

GPT3 = {
    "model": "GPT-3 175B", "gpu": "tpu-v6e", "n_gpus": "2048", "seq_len": "2048", "global_batch": "4096",
    "micro_batch": "2", "precision": "int8", "recompute": "full", "framework": "maxtext", "step_time_s": "10",
    "source": "mlcommons/training_results_v4.1 Google/results/cloud-tpu-trillium-2048-maxtext/gpt3",
}  # fmt: skip
BLOCKS = "step_time derived from block_start/block_stop log intervals"


def row(**cells: str) -> Run:
    return Run({**GPT3, **cells}, 1)


@pytest.mark.parametrize(
    ("cells", "passes"),
    [
        ({"notes": BLOCKS}, 2 / 6),  # 5,662 sequences fill two batches of 4,096 after six
        ({"notes": BLOCKS, "global_batch": "6144", "n_gpus": "3072"}, 1 / 4),
        ({"notes": f"{BLOCKS}; each block of 24,576 sequences contains an evaluation of 24,567 examples"}, 2 / 6),
        ({"notes": f"{BLOCKS}: the log has no eval_start and eval_stop"}, 2 / 6),
        ({"notes": "step_time derived from eval_stop->eval_start log intervals"}, 0),
        ({"notes": f"{BLOCKS}, evaluations taken off"}, 0),
        ({"notes": BLOCKS, "framework": "nemo-mlperf", "gpu": "h100-sxm", "precision": "bf16"}, 0),  # logs them apart
        ({"notes": BLOCKS, "source": "ours"}, 0),
    ],
)
def test_blocks_of_gpt3_contain_an_evaluation(cells: dict[str, str], passes: float) -> None:
    assert setup_of(row(**cells)).evaluated == pytest.approx(passes)


def test_an_evaluation_costs_what_forward_does() -> None:
    """Full recomputation runs forward twice: one in four passes of a step, less what backward does besides."""
    with_it, without = replay(row(notes=BLOCKS)), replay(row())
    assert with_it.predicted_seconds and without.predicted_seconds
    assert 0.06 < with_it.predicted_seconds / without.predicted_seconds - 1 < 2 / 6 / 3
    assert "evaluation of 5,662 sequences" in with_it.assumed
    assert "evaluation" not in without.assumed


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("2,271,724 samples in 13 blocks, with an evaluation of 10,000 samples in each block of about 174,750",
         Evaluation(10_000, 174_750)),
        ("10 blocks of 33 steps in 11.4 s, each block with an evaluation of 10,000 samples",
         Evaluation(10_000, 33 * 6144)),
        ("1,950,144 samples in 800.1 s, with 13 evaluations of 10,000 samples", Evaluation(130_000, 1_950_144)),
        ("3,000,064 samples in 2851.68 s, with one evaluation of 10,000 samples", Evaluation(10_000, 3_000_064)),
        ("3014 steps in 652.0 s, with 18 evaluations of 10,000 samples", Evaluation(180_000, 3014 * 6144)),
        ("each block of about 175,000 samples contains an evaluation of 10,000 samples", Evaluation(10_000, 175_000)),
        ("an evaluation of 10,000 samples", None),
        ("98 steps of 151,151 samples in 9.4 s between evaluations", None),
        ("median of blocks without evaluation, which is of 10,000 samples", None),
        ("an evaluation of 10,000 samples in each block of 174,750; evaluation is logged apart", None),
    ],
)  # fmt: skip
def test_notes_tell_evaluations(notes: str, said: Evaluation | None) -> None:
    assert evaluation_said(row(notes=notes), 6144) == said
