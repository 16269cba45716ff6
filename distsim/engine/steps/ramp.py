"""What a pipeline's schedule idles, over stages that are paid once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from distsim.arrays import Number, some, where
from distsim.engine.steps.stage_seconds import product_seconds
from distsim.formulas.bubbles import zb_h1_ramp_share

if TYPE_CHECKING:
    from distsim.engine.steps.compose import MicroBatch


def ramp_of(
    stages: Sequence[Mapping[str, Number]], each: Sequence[MicroBatch], y: Mapping[str, Number],
    timing: Mapping[str, Number],
) -> Number:  # fmt: skip
    """What the schedule idles over stages that are paid once each. Of ZB-H1 by the real lengths of a micro-batch's
    parts, in the mean of the stages; of others as if forward and the two parts of backward took as long."""
    if not some(y["drains"]):
        return y["ramp"]
    counts = [stage["count"] for stage in stages]
    whole = sum(count * one.seconds for count, one in zip(counts, each, strict=True))
    forward = sum(count * one.passes[0] for count, one in zip(counts, each, strict=True))
    weights = (
        sum(count * product_seconds(stage, "backward", timing) for count, stage in zip(counts, stages, strict=True))
        * y["weights"]
    )
    return where(y["drains"] > 0, zb_h1_ramp_share(forward / whole, weights / whole), y["ramp"])
