"""What a pipeline's schedule idles, over stages that are paid once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from distsim.arrays import Number, largest, some, where
from distsim.engine.steps.stage_seconds import product_seconds
from distsim.engine.timelines.ramps import uneven_ramp

if TYPE_CHECKING:
    from distsim.engine.steps.compose import MicroBatch


def ramp_of(
    stages: Sequence[Mapping[str, Number]], each: Sequence[MicroBatch], y: Mapping[str, Number],
    timing: Mapping[str, Number],
) -> Number:  # fmt: skip
    """What the schedule idles over stages that are paid once each, by the real lengths of a micro-batch's parts in the
    mean of the stages."""
    if not some(y["uneven"] > 0):
        return y["ramp"]
    counts = [stage["count"] for stage in stages]
    whole = sum(count * one.seconds for count, one in zip(counts, each, strict=True))
    forward = sum(count * one.passes[0] for count, one in zip(counts, each, strict=True))
    weights = (
        sum(count * product_seconds(stage, "backward", timing) for count, stage in zip(counts, stages, strict=True))
        * y["weights"]
    )
    slowest = largest([where(count > 0, one.seconds, 0.0) for count, one in zip(counts, each, strict=True)])
    slower = slowest * sum(counts) / whole - 1
    found = uneven_ramp(y["uneven"], y["pp"], y["micro_batches"], y["vpp"], forward / whole, weights / whole, slower)
    return where(y["uneven"] > 0, found, y["ramp"])
