"""Vocabulary parallelism over stages: exchanges that a stage waits for, and work that is not part of the ramp.

All stages do their part of a micro-batch's output layer once its last layer is done. With vocab-1 and vocab-2 a stage
runs passes of other micro-batches before the backward (one more in flight than under 1F1B for each barrier), so that
exchanges hide behind them; interlaced, all do it at once and wait for every exchange, as tensor parallel ranks do
(Yeung et al. 2024, arXiv:2411.05288). While the pipeline fills or drains there is no output layer to share: a step is m
micro-batches of layers and vocabulary and p - 1 of layers (tests/test_vocabulary.py plays the events).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distsim.arrays import Number, maximum, nothing, product, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.engine.kernels.compute import stage_compute
from distsim.engine.kernels.sums import PRODUCTS, StageCompute
from distsim.formulas.step import exposed_seconds


def shared_part(setup: Setup, stage: Stage, whole: StageCompute) -> Number:
    """Part of a stage's computation that is its share of embedding and output layer; 0 where the ends hold them."""
    if not setup.layout.vocab_parallel:
        return 0.0
    ends = stage_compute(setup, replace(stage, layers=(), order=()))
    return _seconds(ends) / _seconds(whole)


def _seconds(found: StageCompute) -> Number:
    return sum(getattr(sums, name) for sums in found.phases.values() for name in (*PRODUCTS, "memory"))


def vocabulary_seconds(
    stage: Mapping[str, Number], micro_batches: Number, computed: Number, never: Number
) -> tuple[Number, Number]:
    """What a micro-batch waits for exchanges of the vocabulary, of which some may hide beside what is ``computed``; and
    that with its part of the computation."""
    path, hidden = (product(stage[kind], 1 / micro_batches) for kind in ("vocab", "vocab_beside"))
    waited = path if nothing(hidden) else path + exposed_seconds(hidden, computed, never)
    return waited, product(stage["vocabulary"], computed) + waited


def passing_seconds(
    stages: Sequence[Mapping[str, Number]], totals: Sequence[Number], slowest: Number, each: Sequence[Any]
) -> tuple[Number, Number]:
    """Seconds of a micro-batch on all stages together, and on the slowest, as far as they fill and drain a pipeline."""
    if not all(nothing(one.shared) and nothing(one.trailing) for one in each):
        totals = [where(seconds > 0, one.passed_on, 0.0) for seconds, one in zip(totals, each, strict=True)]
        slowest = maximum(0.0, *totals)
    summed = sum(one if _once(stage) else stage["count"] * one for stage, one in zip(stages, totals, strict=True))
    return summed, slowest


def _once(stage: Mapping[str, Number]) -> bool:
    """Whether no other stage is like it."""
    return isinstance(stage["count"], int) and stage["count"] == 1
