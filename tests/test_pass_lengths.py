"""What a schedule idles when its passes are of any length: closed forms and paths against the event simulation."""

from __future__ import annotations

import random
from functools import cache

import numpy
import pytest
from test_schedule_shape import ramp_share

import distsim
from distsim.engine.timelines.lengths import ROUNDS, longest_paths
from distsim.engine.timelines.ramps import UNEVEN, uneven_number, uneven_ramp
from distsim.errors import DistsimError
from distsim.formulas.schedule_forms import FORMS, Setting
from distsim.schedules.registry import SCHEDULES

SIZES = ((2, 8), (3, 2), (4, 3), (4, 8), (4, 46), (5, 23), (6, 54), (8, 16))
USUAL = (("equal", 1 / 3, 1 / 3), ("computed again", 0.25, 0.25), ("long attention", 0.3, 0.15), ("frozen", 0.5, 0.005))
SPLIT = ("zb-h1", "zb-h2", "zb-v", "interleaved-zb", "dualpipe", "dualpipe-v")
WORST = 0.007
"""Of all times, for ratios between those whose paths were looked for."""


@cache
def simulated(name: str, stages: int, micro: int, forward: float, weights: float) -> float | None:
    """The makespan; None where the schedule cannot run so many micro-batches."""
    first = 1 - forward - weights
    times = {"forward": forward, "input_gradient": first, "weight_gradient": weights}
    try:
        return distsim.pipeline(stages, micro, name, **times).makespan
    except DistsimError:
        return None


def shares() -> list[tuple[float, float]]:
    """Forward and weight gradient of a micro-batch: usual ones, and some of all that there are."""
    draw = random.Random(11)
    drawn = [sorted((draw.random(), draw.random())) for _ in range(12)]
    return [(forward, weights) for _, forward, weights in USUAL] + [(low, high - low) for low, high in drawn]


@pytest.mark.parametrize("name", UNEVEN)
def test_ramps_of_passes_of_any_length(name: str) -> None:
    asked = 0
    chunks = SCHEDULES[name].default_chunks
    for stages, micro in SIZES:
        for forward, weights in shares():
            if (expected := simulated(name, stages, micro, round(forward, 3), round(weights, 3))) is None:
                break
            asked += 1
            ramp = ramp_share(name, stages, micro, chunks, round(forward, 3), round(weights, 3))
            found = micro + ramp * (stages - 1) / chunks
            exact = name in SPLIT or name == "zb-auto"
            assert found == pytest.approx(expected, rel=1e-9 if exact else WORST), (stages, micro, forward, weights)
    assert asked >= 40


@pytest.mark.parametrize("name", SPLIT)
def test_closed_forms_are_the_paths_that_the_simulation_finds(name: str) -> None:
    chunks = SCHEDULES[name].default_chunks
    for stages, micro in ((2, 6), (4, 12), (6, 30)):
        paths = longest_paths(name, stages, micro, chunks)
        for forward, weights in shares():
            first = 1 - forward - weights
            longest = max(one[0] * forward + one[1] * first + one[2] * weights for one in paths)
            form = FORMS[name].makespan(Setting(stages, micro, chunks, forward, first, weights))
            assert form == pytest.approx(longest, rel=1e-9)
            assert not any(one.around for one in paths)


@pytest.mark.parametrize(("stages", "micro"), [(4, 5), (4, 10), (5, 12), (6, 21), (8, 20)])
def test_rounds_that_the_stages_do_not_divide(stages: int, micro: int) -> None:
    """What the schedule can run a step has too, though as many micro-batches and a round more it could not."""
    for forward, weights in shares():
        forward, weights = round(forward, 3), round(weights, 3)
        expected = simulated("interleaved-zb", stages, micro, forward, weights)
        found = micro + ramp_share("interleaved-zb", stages, micro, 2, forward, weights) * (stages - 1) / 2
        assert found == pytest.approx(expected, rel=WORST)


def test_what_goes_around_grows_with_every_micro_batch() -> None:
    """V-Min waits for its neighbours in every round once weights' gradients are shorter than the other passes."""
    few, many = (4 * ROUNDS, 12 * ROUNDS)
    for name, grows in (("v-min", True), ("v-half", True), ("zb-v", False), ("1f1b-v", False)):
        ramps = [ramp_share(name, 4, micro, 2, 0.25, 0.25) for micro in (few, many)]
        assert (ramps[1] > 2 * ramps[0]) == grows
        assert any(one.around for one in longest_paths(name, 4, few, 2)) == (name != "zb-v")


def test_a_slow_stage_does_not_wait_for_what_goes_around_as_well() -> None:
    number, options = uneven_number("v-min", 4), (4, 32, 2, 0.25, 0.25)
    ramps = [float(uneven_ramp(number, *options, slower)) for slower in (0.0, 0.05, 0.1, 5.0)]
    assert ramps[0] - ramps[1] == pytest.approx(0.05 * 32 * 2 / 3)
    assert ramps[0] > ramps[1] > ramps[2] > ramps[3] > 0


def test_arrays_are_answered_like_numbers() -> None:
    names = numpy.array(["zb-h1", "1f1b", "v-half", "zb-auto", "zb-v"]).reshape(-1, 1, 1)
    micro, forward = numpy.array([3, 8, 24]).reshape(-1, 1), numpy.array([0.25, 0.3, 0.35, 0.4])
    found = uneven_ramp(uneven_number(names, 4), 4, micro, 2, forward, 0.2)
    assert found.shape == (5, 3, 4)
    for row, name in enumerate(names.ravel().tolist()):
        for column, m in enumerate(micro.ravel().tolist()):
            for place, share in enumerate(forward.tolist()):
                alone = uneven_ramp(uneven_number(name, 4), 4, m, 2, share, 0.2) if name != "1f1b" else 1.0
                assert found[row, column, place] == pytest.approx(alone)


def test_layouts_too_large_to_simulate_at_once_give_the_same_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    from distsim.engine.timelines import lengths

    whole = longest_paths("v-half", 4, 20, 2)
    lengths.longest_paths.cache_clear()
    lengths._ends.cache_clear()
    monkeypatch.setattr(lengths, "MOST_NUMBERS", 2**15)
    assert lengths.longest_paths("v-half", 4, 20, 2) == whole
    lengths._ends.cache_clear()
