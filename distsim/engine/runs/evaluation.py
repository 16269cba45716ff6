"""Evaluations inside the time that was measured of a run's steps."""

from __future__ import annotations

from dataclasses import replace

from distsim.arrays import ceil_div
from distsim.engine.jobs.resolve import Setup
from distsim.interop.runs import Run
from distsim.interop.runs.evaluation import Evaluation, evaluation_said, mlperf_gpt3, timed_by_blocks

MLPERF_GPT3 = Evaluation(5_662, 24_576)
"""Google's runs of MLPerf's GPT-3: MaxText logs block_stop, eval_accuracy and the next block_start one after another
once a block's evaluation is done (mllog_utils.py, early_stop_check; Paxml's EarlyStoppingFn is called with what it
gave), after every 24,576 sequences. What the logs call eval_samples are 24,567 documents of C4, which are concatenated
and cut into 5,662 sequences (input_pipeline/_tfds_data_processing_c4_mlperf.py: the split
validation_tokenized_5662seqs of c4/en:3.0.5, or validation_24567exp grouped to the same), filled up to whole
batches."""


def evaluating(run: Run, setup: Setup) -> Setup:
    """The setup with what its run evaluated in the time that was measured, in batches as large as those that train."""
    found = _evaluation(run, setup)
    if found is None:
        return setup
    batch = int(setup.layout.global_batch)
    passes = ceil_div(found.sequences, batch) / max(ceil_div(found.every, batch), 1)
    return replace(setup, evaluated=float(passes))


def told_evaluation(run: Run, setup: Setup) -> str:
    """What a replay counts in beside steps; nothing where it counts steps alone."""
    found = _evaluation(run, setup)
    if found is None:
        return ""
    return (f"the measured time includes an evaluation of {found.sequences:,} sequences after every {found.every:,}: "
            f"{setup.evaluated:.2g} forward passes per step are included")  # fmt: skip


def _evaluation(run: Run, setup: Setup) -> Evaluation | None:
    blocks = setup.framework.family == "jax" and timed_by_blocks(run)
    return MLPERF_GPT3 if blocks and mlperf_gpt3(run) else evaluation_said(run, int(setup.layout.global_batch))
