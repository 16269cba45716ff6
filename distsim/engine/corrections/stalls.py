"""Which state of a framework's software a job is to be timed in, by the states that measured runs like it were in.

Runs of one sweep may come from several states of its software (specs/timing.py) that no cell states. How much slower
a run is than the fitted model indicates its state; indicator kriging (Journel 1983) of the states of all runs gives the
state to expect for a job. Far from every run it is the plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from distsim.arrays import Number, exp, where
from distsim.specs.timing import CHECKED, PLAIN, STALLED

WEIGHTS = {"hidden": 0.4, "gpus": 0.6, "tp": 0.4, "pp": 0.13, "micro_batch": 0.3, "micro_batches": 0.2, "zero": 0.6,
           "data_parallel": 0.8, "pipeline": 1.5, "fullness": 1.2, "too_large": 1.5}  # fmt: skip
"""Distance of a doubling of each, of a ZeRO stage, of having data or pipeline parallelism, of the peak of memory by a
whole GPU, and of not fitting (for what newer software had no memory, only runs of older software remain); chosen by
leaving runs out (docs/findings/nanotron.md)."""
SPREAD = 0.15
"""Typical deviation (of the logarithm of time) of a run from the model in its own state."""
FARTHEST = 1.5
"""Logarithm of how far off a run is, beyond which that says no more of its state. Assumed."""
NOISE = 0.02
"""Variance of a run's state that likeness does not explain, over the variance that it does. Assumed."""


class Vote(NamedTuple):
    """A measured run's say in the states of jobs like it."""

    place: tuple[float, ...]
    checked: float
    stalled: float


def place_of(logs: dict[str, Number], zero: Number, fullness: Number) -> tuple[Number, ...]:
    """Coordinates of a job: ``logs`` are binary logarithms of its sizes and degrees, ``fullness`` is its peak of memory
    over what a GPU has."""
    data = logs["gpus"] - logs["tp"] - logs["pp"] - logs["cp"]
    own = {**logs, "zero": zero, "data_parallel": where(data > 0, 1.0, 0.0),
           "pipeline": where(logs["pp"] > 0, 1.0, 0.0), "fullness": fullness,
           "too_large": where(fullness > 1, 1.0, 0.0)}  # fmt: skip
    return tuple(own[name] * weight for name, weight in WEIGHTS.items())


def closeness(here: Sequence[Number], there: Sequence[Number]) -> Number:
    """Likeness of two jobs as far as states go: the exponential kernel."""
    squared = sum((a - b) * (a - b) for a, b in zip(here, there, strict=True))
    return exp(-(squared**0.5))


def state_of(place: Sequence[Number], votes: Sequence[Vote]) -> tuple[Number, Number]:
    """The likeliest state of a job and how likely it is."""
    checked, stalled = 0.0, 0.0
    for vote in votes:
        near = closeness(place, vote.place)
        checked = checked + vote.checked * near
        stalled = stalled + vote.stalled * near
    return likeliest(checked, stalled)


def likeliest(checked: Number, stalled: Number) -> tuple[Number, Number]:
    """The state with the largest share, and that share; a share may lie a little outside of 0 to 1."""
    plain = 1 - checked - stalled
    state = where(stalled > checked, where(stalled > plain, STALLED, PLAIN), where(checked > plain, CHECKED, PLAIN))
    best = where(state == STALLED, stalled, where(state == CHECKED, checked, plain))
    return state, best


def distinct_state(state: int, tp: float, pp: float, nodes: float) -> int:
    """The simplest state with the same time for a job: without a pipeline nothing stalls, without tensor parallelism
    across nodes nothing is checked."""
    if state == STALLED and pp == 1:
        state = CHECKED
    return PLAIN if state == CHECKED and (tp == 1 or nodes <= 1) else state
