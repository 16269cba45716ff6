"""What a pipeline's schedule idles, over stages that are paid once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from distsim.arrays import Number, largest, nothing, some, where
from distsim.engine.steps.weight_gradients import weight_seconds
from distsim.engine.timelines.ramps import uneven_ramp
from distsim.formulas.step import apart_seconds

if TYPE_CHECKING:
    from distsim.engine.steps.compose import MicroBatch


class Lengths(NamedTuple):
    """A micro-batch in the mean of the stages: the shares of its time that are forward and weights' gradients, and the
    share by which the slowest stage takes longer than that mean."""

    forward: Number
    weights: Number
    slower: Number


def lengths_of(
    stages: Sequence[Mapping[str, Number]], each: Sequence[MicroBatch], layout: Mapping[str, Number],
    timing: Mapping[str, Number],
) -> Lengths:  # fmt: skip
    """How long the parts of a micro-batch are."""
    counts = [stage["count"] for stage in stages]
    whole = sum(count * one.seconds for count, one in zip(counts, each, strict=True))
    forward = sum(count * (one.passes[0] + one.sent) for count, one in zip(counts, each, strict=True))
    weights = (
        sum(count * weight_seconds(stage, one, layout, timing, layout["weights"])
            for count, stage, one in zip(counts, stages, each, strict=True))
    )  # fmt: skip
    slowest = largest([where(count > 0, one.seconds, 0.0) for count, one in zip(counts, each, strict=True)])
    return Lengths(forward / whole, weights / whole, slowest * sum(counts) / whole - 1)


def ramp_of(
    stages: Sequence[Mapping[str, Number]], each: Sequence[MicroBatch], layout: Mapping[str, Number],
    timing: Mapping[str, Number],
) -> Number:  # fmt: skip
    """What the schedule idles over stages that are paid once each, by the real lengths of a micro-batch's parts."""
    if not some(layout["uneven"] > 0):
        return layout["ramp"]
    lengths = lengths_of(stages, each, layout, timing)
    found = uneven_ramp(layout["uneven"], layout["pp"], layout["micro_batches"], layout["vpp"], *lengths)
    return where(layout["uneven"] > 0, found, layout["ramp"])


class Slowest(NamedTuple):
    """Seconds of a micro-batch on the stage that takes longest for its forward, for the rest, and for both."""

    slowest_forward: Number
    slowest_backward: Number
    slowest_stage: Number


def slowest_of(stages: Sequence[Mapping[str, Number]], each: Sequence[MicroBatch]) -> Slowest:
    """The slowest forward, backward and sum of both over the stages that a layout has, in seconds."""
    forwards = [one.passes[0] + one.sent for one in each]  # a stage whose next is on another node may send for long
    pairs = [(first, one.seconds - first, one.seconds) for first, one in zip(forwards, each, strict=True)]
    counts = [stage["count"] for stage in stages]
    return Slowest(*(
        largest([where(count > 0, pair[i], 0.0) for count, pair in zip(counts, pairs, strict=True)]) for i in range(3)
    ))  # fmt: skip


def waits_apart(
    stages: Sequence[Mapping[str, Number]], each: Sequence[MicroBatch], layout: Mapping[str, Number]
) -> Number:
    """Further idle seconds of a pipeline that runs all forwards before any backward, each at the pace of its own
    slowest stage; 0 of others."""
    if nothing(layout["forwards_first"]):
        return 0.0
    return layout["forwards_first"] * apart_seconds(*slowest_of(stages, each), layout["micro_batches"], layout["vpp"])
