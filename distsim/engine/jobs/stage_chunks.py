"""Which chunks a pipeline stage has, and which layers are on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from distsim.engine.jobs.predictions_apart import stage_of_predictions
from distsim.engine.jobs.resolve import Setup
from distsim.engine.timelines.schedule_shape import turns_back
from distsim.schedules.action import wave


def chunks_of(setup: Setup, stage: int) -> Sequence[int]:
    """Chunks of a stage in model order: stage r holds chunks r, r + pp, r + 2 pp …, or the arms of a V."""
    if folded(setup):
        placement = wave(setup.layout.pp, len(setup.chunk_layers) // setup.layout.pp)
        return [chunk for chunk, place in enumerate(placement) if place == stage]
    return range(stage, len(setup.chunk_layers), setup.layout.pp)


def stage_layer_indices(setup: Setup, stage: int) -> list[int]:
    """Indices of the layers on a stage, all its chunks together."""
    ends = [0, *accumulate(setup.chunk_layers)]
    return [layer for chunk in chunks_of(setup, stage) for layer in range(ends[chunk], ends[chunk + 1])]


def chunk_sizes(setup: Setup, stage: int) -> list[int]:
    """Layers of each chunk of a stage; those of multi-token prediction are on the last of the one that has them."""
    sizes = [setup.chunk_layers[chunk] for chunk in chunks_of(setup, stage)]
    if stage == 0 and (tower := setup.model.shown_tower):
        sizes[0] += tower.layers
    if stage == predicting_stage(setup):
        sizes[-1] += setup.model.mtp_trained * len(setup.model.mtp_module)
    return sizes


def folded(setup: Setup) -> bool:
    """Whether chunks run down the stages and back up, so that the stage with the embedding may hold the head too."""
    return len(setup.chunk_layers) > setup.layout.pp > 1 and turns_back(setup.layout.schedule)


def head_stage(setup: Setup) -> int:
    """The stage that holds the head: the last, or the first where an even number of chunks runs down and up."""
    pp = setup.layout.pp
    return 0 if folded(setup) and len(setup.chunk_layers) // pp % 2 == 0 else pp - 1


def predicting_stage(setup: Setup) -> int:
    """The stage that holds the layers of multi-token prediction: the one with the head, if no other."""
    apart = stage_of_predictions(setup)
    return head_stage(setup) if apart is None else apart
