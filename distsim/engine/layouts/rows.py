"""Layouts of a block as columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from distsim.arrays import where
from distsim.engine.layouts.fold import Block
from distsim.engine.layouts.money import Rent
from distsim.engine.layouts.recomputed import selective_word
from distsim.engine.layouts.space import AXES, Array

COLUMNS: dict[str, tuple[str, str]] = {
    "gpus": ("", "accelerators of the job"), "tp": ("", "tensor parallel degree"), "pp": ("", "pipeline stages"),
    "vpp": ("", "model chunks per stage"), "cp": ("", "context parallel degree"),
    "ep": ("", "expert parallel degree"), "etp": ("", "tensor parallel degree of experts"),
    "dp": ("", "data parallel degree"), "zero": ("", "ZeRO stage"), "zero_group": ("", "ranks of a sharding group"),
    "micro_batch": ("sequences", "of one micro-batch"), "micro_batches": ("", "micro-batches per step"),
    "global_batch": ("sequences", "of one step"), "recompute": ("", "activation recomputation"),
    "recompute_layers": ("", "layers per stage under full recomputation, -1 for all"),
    "sequence_parallel": ("", "1 where it is on"), "schedule": ("", "pipeline schedule"),
    "precision": ("", "precision recipe"), "offload": ("", "what is offloaded"),
}  # fmt: skip
ANSWERS: dict[str, tuple[str, str]] = {
    "seconds": ("s", "time of one optimizer step"), "peak_memory_bytes": ("B", "on the fullest GPU"),
    "tokens_per_second": ("1/s", "over all GPUs"),
}  # fmt: skip
COST = {"usd_per_million_tokens": ("USD", "rent per million tokens trained, at the pace of campaigns")}


def described(priced: bool) -> dict[str, tuple[str, str]]:
    """Unit and meaning of each column."""
    return {**COLUMNS, **ANSWERS, **(COST if priced else {})}


def columns(block: Block, rents: Mapping[int, Rent]) -> dict[str, Any]:
    """The valid layouts of a block by column: an array each, or one value that holds for all of them."""
    places = numpy.nonzero(block.valid)
    setup, seconds = block.group.setup, block.seconds[places]
    layout = setup.layout
    again = where(layout.selective, selective_word(setup), where(layout.recompute_layers, "full", "none"))
    own = {"gpus": layout.gpus, "global_batch": layout.global_batch, "recompute": again,
           "precision": setup.precision.name, "offload": ",".join(setup.offload) or "none"}  # fmt: skip
    made = {
        name: _column(own[name] if name in own else getattr(layout, name), places, block) for name in COLUMNS
    }  # fmt: skip
    made["seconds"] = seconds
    made["peak_memory_bytes"] = numpy.rint(block.peak[places]).astype(numpy.int64)
    made["tokens_per_second"] = made["global_batch"] * layout.seq / seconds
    if rents:
        rent = rents[int(numpy.max(layout.gpus))]
        made["usd_per_million_tokens"] = rent.usd_per_million_tokens(made["tokens_per_second"])
    return made


def _column(value: Any, places: tuple[Array, ...], block: Block) -> Any:
    """A field at the places of valid layouts; what is one number or word stays one."""
    if not isinstance(value, numpy.ndarray):
        return value
    assert value.ndim == AXES
    index = tuple(
        place + start if size > 1 else numpy.zeros_like(place)
        for place, start, size in zip(places, block.start, value.shape, strict=True)
    )
    return value[index]


def rows(made: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The columns of ``made`` as rows, one tuple for each layout."""
    count = len(made["seconds"])
    return zip(*(
        value.tolist() if isinstance(value, numpy.ndarray) else [value] * count for value in made.values()
    ), strict=True)  # fmt: skip
