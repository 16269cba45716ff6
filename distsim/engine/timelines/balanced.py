"""Layers with times of their own, split over a pipeline's stages, and what that makes of the times of its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distsim import keywords
from distsim.engine.timelines.input import Time, whole_number
from distsim.engine.timelines.partition import Partition
from distsim.errors import DistsimError
from distsim.schedules import action
from distsim.schedules.registry import chunks_for, find

PASSES = ("forward", "backward", "input_gradient", "weight_gradient")
"""As the times of a pipeline are listed."""


def balanced(
    layers: Any, stages: int | None, schedule: str, chunks: int | None, times: Sequence[Time | None]
) -> tuple[Partition, tuple[Time | None, Time | None, Time | None, Time | None]]:
    """The split of ``layers``, whose forward times they are, and the times of each chunk: backward so many times as
    long as is stated, usually 2."""
    from distsim.engine.timelines.partition_chunks import split_over

    if times[0] is not None:
        hints = "list other layer times", "backward 2 is twice the forward time of each layer"
        raise DistsimError("balance and forward exclude each other: layer times are forward times", *hints)
    for name, one in zip(PASSES, times, strict=True):
        if isinstance(one, (list, tuple)):
            raise DistsimError(f"{name} is a list of times, but balance sets them", "give one number")
        if one is not None:
            keywords.number(name, one)
    each = _times(layers)
    count = whole_number(stages or 0, "the number of stages", "--stages 4")
    if chunks is not None:
        chunks = whole_number(chunks, "chunks", "--chunks 2")
    parts_of_stage, kind = chunks_for(schedule, chunks), find(schedule).placement
    both = kind == "bidirectional"
    # with two directions a device holds a stage of the model and the one that mirrors it
    mirrored = [min(s, count - 1 - s) for s in range(count)]
    parts = split_over(each, mirrored if both else getattr(action, kind)(count, parts_of_stage))
    return parts, _spread([*parts.times, *parts.times] if both else list(parts.times), *times[1:])


def _times(layers: Any) -> list[float]:
    if isinstance(layers, (str, bytes)) or not isinstance(layers, Sequence):
        raise DistsimError(f"balance is {layers!r}", "list the forward time of each layer, e.g. [0.5, 1, 1, 2]")
    return [keywords.number("balance", one) for one in layers]


def _spread(
    each: list[float], whole: Any = None, first: Any = None, second: Any = None
) -> tuple[Time | None, Time | None, Time | None, Time | None]:
    """Times of all passes per chunk: forward, and the others as multiples of it."""
    if whole is not None and first is None and second is None:
        first = second = whole / 2
    scales = (whole, 1.0 if first is None else first, 1.0 if second is None else second)
    backward, *halves = (None if scale is None else [one * scale for one in each] for scale in scales)
    return each, backward, halves[0], halves[1]
