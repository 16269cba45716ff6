"""What a named schedule makes of a pipeline: the way of its chunks, and the micro-batches that each stage holds.

Closed forms where there are any, the event simulation elsewhere; for one layout or for arrays of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from distsim.arrays import Number, each, maximum, where
from distsim.formulas.schedule_forms import PEAKS, Setting
from distsim.schedules.registry import SCHEDULES, find
from distsim.specs.layout import Layout

ANY_NUMBER = ("naive", "gpipe", "1f1b", "pipedream", "pipedream-2bw", "interleaved-1f1b", "looped-bfs", "zb-h1",
              "zb-h2", "zb-v")  # fmt: skip
"""Schedules whose closed forms stand for any number of stages and micro-batches; others are simulated, which also
refuses what they cannot run."""
STEADY = ("v-half", "v-min", "1f1b-v", "interleaved-zb", "dualpipe", "dualpipe-v")
"""Simulated schedules of which a further round of micro-batches, after ``ROUNDS`` rounds of as many as there are
stages, does not change what a stage holds (tests/test_schedule_shape.py)."""
ROUNDS = 4
ALL_FORWARDS_FIRST = ("gpipe", "looped-bfs")


def in_flight(schedule: Number, stages: int, micro: Number, chunks: Number, stage: int) -> Number:
    """Micro-batches that a stage holds at once, in whole-stage units."""
    if stages == 1:
        return 1
    return by_name(schedule, lambda name: _held(name, stages, micro, chunks, stage))


def head_in_flight(schedule: Number, stages: int, micro: Number) -> Number:
    """Micro-batches whose logits are held: one where backward follows forward at once."""
    if stages == 1:
        return 1
    return by_name(schedule, lambda name: micro if name in ALL_FORWARDS_FIRST else 1)


def names_of(schedule: Number) -> list[str]:
    """The schedules of a layout, or of an array of layouts."""
    if isinstance(schedule, str):
        return [schedule]
    return sorted(set(schedule.ravel().tolist()))


def turns_back(schedule: Number) -> bool:
    """Whether the model runs down the stages and back up; layouts in one array all do, or none does."""
    kinds = {SCHEDULES[name].placement == "wave" for name in names_of(schedule) if name in SCHEDULES}
    assert len(kinds) <= 1
    return kinds == {True}


def both_ways(schedule: Number) -> bool:
    """Whether two copies of the model run through the stages in opposite directions."""
    return any(SCHEDULES[name].placement == "bidirectional" for name in names_of(schedule) if name in SCHEDULES)


def paired(schedule: Number, stages: int) -> Number:
    """1 where the forward of one micro-batch runs in one block with the backward of another, so that each one's expert
    exchanges hide behind the other's computation (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1)."""
    if stages == 1:
        return 0
    return by_name(schedule, lambda name: 1 if name in SCHEDULES and SCHEDULES[name].fused else 0)


def interleaved_share(y: Layout) -> Number:
    """Share of a step's passes that run beside one of another micro-batch where interleaved 1F1B pairs a chunk's
    forward with another's backward: all but those that fill and drain the pipeline, pp micro-batches in the mean of
    the stages (2 (pp - rank - 1) + (vpp - 1) pp + 1 chunks; one micro-batch where nothing is pipelined). NVIDIA/
    Megatron-LM core/pipeline_parallel, get_pp_rank_microbatches and combined_1f1b; none without several chunks."""
    share = maximum(0.0, 1 - y.pp / y.micro_batches)
    if isinstance(y.pp, int) and y.pp == 1:
        return share
    chunks = (y.vpp > 1) & (y.schedule == "interleaved-1f1b")
    return where((y.pp == 1) | chunks, share, paired(y.schedule, y.pp))


def by_name(schedule: Number, value: Callable[[str], Number]) -> Number:
    """A value of each layout by its schedule's name."""
    names = names_of(schedule)
    found = value(names[0])
    for name in names[1:]:
        found = where(schedule == name, value(name), found)
    return found


def _held(name: str, stages: int, micro: Number, chunks: Number, stage: int) -> Number:
    if name in ANY_NUMBER:
        return PEAKS[name](Setting(stages, micro, chunks), stage)
    return each(lambda m, v: _simulated(name, stages, m, v)[stage], micro, chunks)


@functools.lru_cache(maxsize=4096)
def _simulated(name: str, stages: int, micro: int, chunks: int) -> tuple[float, ...]:
    """Micro-batches held per stage, by the event simulation."""
    from distsim.engine.pipeline import pipeline

    if name in STEADY and micro % stages == 0:
        micro = min(micro, ROUNDS * stages)
    usual = find(name).default_chunks if chunks == 1 else chunks  # the schedule's own chunks where none are stated
    return pipeline(stages=stages, micro=micro, schedule=name, chunks=usual).peak_in_flight
