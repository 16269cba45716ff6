"""Idle time of a schedule over equal stages whose passes have any lengths; for one layout or arrays of them.

A ramp is in units of 1F1B's over as many chunks, which pays all other stages once. Closed forms give it where they are
exact, the paths that the event simulation finds elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any

from distsim.arrays import Number, largest, maximum, some
from distsim.engine.timelines.schedule_shape import by_name
from distsim.formulas.schedule_forms import FORMS, Setting
from distsim.schedules.registry import SCHEDULES

EVEN = ("naive", "gpipe", "1f1b", "pipedream", "pipedream-2bw", "interleaved-1f1b", "looped-bfs")
"""Schedules that idle as long whatever part of a micro-batch is which pass."""
UNEVEN = tuple(name for name in SCHEDULES if name not in EVEN)
PER_TIMES = "zb-auto"
"""Its order is found for the passes' times."""
DIGITS = 3
"""Of shares of a micro-batch that such an order is found for."""
THIRD = 1 / 3
"""Of a micro-batch's time: forward, input gradient and weight gradient that take as long as each other."""


def even_ramp(schedule: Number, stages: int, micro: Number, chunks: Number) -> Number:
    """The ramp of schedules for which lengths do not matter; 1 for others."""
    if stages == 1:
        return 1.0
    return by_name(schedule, lambda name: _even(name, stages, micro, chunks) if name in EVEN else 1.0)


def uneven_number(schedule: Number, stages: int) -> Number:
    """Which schedule it is for which lengths matter, counted from 1; 0 for others and without a pipeline."""
    if stages == 1:
        return 0
    return by_name(schedule, lambda name: UNEVEN.index(name) + 1 if name in UNEVEN else 0)


def uneven_ramp(
    number: Number, stages: Number, micro: Number, chunks: Number, forward: Number, weights: Number,
    slower: Number = 0.0,
) -> Number:  # fmt: skip
    """The ramp of the schedule of that number by the shares of a micro-batch that are its forward and its weights'
    gradients; 1 where the number is 0. The slowest stage takes ``slower`` of the mean longer than that: paths that go
    around between stages do not wait for it as well. Counts and shares may be arrays, which broadcast."""
    counts = (number, stages, micro, chunks)
    if all(isinstance(one, (int, float)) for one in counts):
        place, p, m, v = map(int, counts)
        return _of_lengths(place, p, m, v, forward, weights, slower)
    import numpy

    shape = numpy.broadcast_shapes(*(numpy.shape(one) for one in (*counts, forward, weights, slower)))
    table = numpy.stack(numpy.broadcast_arrays(*counts))
    distinct, places = numpy.unique(table.reshape(len(counts), -1), axis=1, return_inverse=True)
    places = numpy.broadcast_to(places.reshape(table.shape[1:]), shape)
    parts = [numpy.broadcast_to(one, shape) for one in (forward, weights, slower)]
    found = numpy.ones(shape)
    for place, column in enumerate(distinct.T.astype(int).tolist()):
        here = places == place
        found[here] = _of_lengths(*column, *(one[here] for one in parts))
    return found


def _even(name: str, stages: int, micro: Number, chunks: Number) -> Number:
    return (FORMS[name].makespan(Setting(stages, micro, chunks, THIRD, THIRD, THIRD)) - micro) * chunks / (stages - 1)


def _of_lengths(
    number: int, stages: int, micro: int, chunks: int, forward: Number, weights: Number, slower: Number
) -> Number:
    if number == 0:
        return 1.0
    name = UNEVEN[number - 1]
    if name == PER_TIMES:
        idle = _found_for(stages, micro, forward, weights)
    else:
        idle = _makespan(name, stages, micro, chunks, forward, weights, slower) - micro
    return idle * chunks / (stages - 1)


def _makespan(
    name: str, stages: int, micro: int, chunks: int, forward: Number, weights: Number, slower: Number
) -> Number:
    """Seconds of a schedule whose passes together take one second a chunk on a stage, less what the slowest stage's own
    work takes longer (``slower`` of each); never less than that work."""
    first = 1 - forward - weights
    possible = max(chunks, SCHEDULES[name].least)  # of arrays of layouts some have another schedule
    here = Setting(stages, micro, possible, forward, first, weights)
    if name in FORMS and not some(1 - FORMS[name].exact(here)):
        return FORMS[name].makespan(here)
    from distsim.engine.timelines.lengths import longest_paths

    paths = longest_paths(name, stages, micro, possible)
    longest = largest(
        one.forwards * forward + one.input_gradients * first + one.weight_gradients * weights
        - one.around * micro * slower
        for one in paths
    )  # fmt: skip
    return maximum(longest, float(micro))


def _found_for(stages: int, micro: int, forward: Number, weights: Number) -> Number:
    """What an order idles that is found for the times themselves."""
    if isinstance(forward, (int, float)):
        return _searched(stages, micro, round(forward, DIGITS), round(float(weights), DIGITS))
    return _each(stages, micro, forward, weights)


def _each(stages: int, micro: int, forward: Any, weights: Any) -> Any:
    import numpy

    return numpy.array(
        [_found_for(stages, micro, *one) for one in zip(forward.tolist(), weights.tolist(), strict=True)]
    )


@functools.lru_cache(maxsize=1024)
def _searched(stages: int, micro: int, forward: float, weights: float) -> float:
    from distsim.engine.timelines.simulation import simulated

    first = 1 - forward - weights
    return (
        simulated(
            stages=stages,
            micro=micro,
            schedule=PER_TIMES,
            forward=forward,
            input_gradient=first,
            weight_gradient=weights,
        ).makespan
        - micro
    )
