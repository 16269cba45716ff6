"""Layouts of a block as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from distsim.engine.search_fold import Block
from distsim.engine.search_space import AXES


def rows(block: Block, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The valid layouts of a block with the named fields, their seconds and bytes."""
    places = numpy.nonzero(block.valid)
    y = block.group.setup.layout
    words = {"recompute": numpy.where(y.selective, "selective", numpy.where(y.recompute_layers, "full", "none"))}
    made: list[Any] = []
    for name in columns:
        value = words[name] if name in words else getattr(y, name)
        if not isinstance(value, numpy.ndarray):
            made.append([value] * len(places[0]))
            continue
        assert value.ndim == AXES
        index = tuple(
            place + start if size > 1 else numpy.zeros_like(place)
            for place, start, size in zip(places, block.start, value.shape, strict=True)
        )
        made.append(value[index].tolist())
    return zip(*made, block.seconds[places].tolist(), numpy.rint(block.peak[places]).astype(int).tolist(), strict=True)
