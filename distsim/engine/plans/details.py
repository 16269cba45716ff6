"""An option of a plan from inside: the memory of its layout per stage, and its pipeline over time."""

from __future__ import annotations

from dataclasses import dataclass

from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import MemoryReport, memory_of
from distsim.engine.plans.plan import Option
from distsim.engine.plans.planner import Plan
from distsim.engine.steps.pass_times import pass_times
from distsim.engine.timelines.simulation import Pipeline, simulated

ROUNDS = 2
"""Micro-batches that are drawn, as a multiple of the stages: warm-up, steady state and drain all show."""
MOST_ACTIONS = 100_000
"""Pipelines of more actions are not simulated whole for their bubble."""


@dataclass(frozen=True)
class Details:
    """``drawn`` is a pipeline of few micro-batches, None where there is one stage; ``bubble`` is that of the step."""

    setup: Setup
    memory: MemoryReport
    drawn: Pipeline | None
    bubble: float | None


def details(made: Plan, option: Option) -> Details:
    """Memory and pipeline of an option's layout, by the functions that chose it."""
    setup = made.setup(option)
    layout = setup.layout
    if layout.pp == 1:
        return Details(setup, memory_of(setup), None, None)
    drawn = _pipeline(setup, min(layout.micro_batches, ROUNDS * layout.pp))
    if drawn.micro == layout.micro_batches:
        bubble: float | None = drawn.bubble_fraction
    elif 2 * layout.pp * layout.vpp * layout.micro_batches > MOST_ACTIONS:
        bubble = None
    else:
        bubble = _pipeline(setup, layout.micro_batches).bubble_fraction
    return Details(setup, memory_of(setup), drawn, bubble)


def _pipeline(setup: Setup, micro: int) -> Pipeline:
    layout = setup.layout
    chunks = layout.vpp if layout.vpp > 1 else None
    return simulated(stages=layout.pp, micro=micro, schedule=layout.schedule, chunks=chunks, **pass_times(setup))
