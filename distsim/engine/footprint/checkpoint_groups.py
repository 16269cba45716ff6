"""Full recomputation whose checkpoints cover several layers each (Megatron's uniform method)."""

from __future__ import annotations

from itertools import accumulate, pairwise

from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stage_chunks import chunk_sizes
from distsim.engine.jobs.stages import Stage


def grouped(setup: Setup) -> bool:
    """Whether a checkpoint covers several layers."""
    return setup.layout.recompute_group > 1


def group_starts(setup: Setup, stage: Stage) -> tuple[int, ...]:
    """Places of the layers of a stage whose inputs are kept: of each group the first. Groups begin anew with each chunk
    of a stage, and the last of a chunk may be smaller (NVIDIA/Megatron-LM core/transformer/transformer_block.py,
    _checkpointed_forward)."""
    each = setup.layout.recompute_group
    sizes = chunk_sizes(setup, stage.index)
    sizes = sizes if sum(sizes) == stage.layer_count else [stage.layer_count]
    chunks = pairwise(accumulate(sizes, initial=0))
    return tuple(start for first, last in chunks for start in range(first, last, each))


def kept_inputs(setup: Setup, stage: Stage) -> list[int]:
    """How many layers of each kind have their inputs kept."""
    starts = [stage.order[place] for place in group_starts(setup, stage)]
    return [starts.count(kind) for kind in range(len(stage.layers))]


def layers_ahead(setup: Setup, stage: Stage, place: int) -> list[tuple[int, int]]:
    """Of each kind, how many layers before one keep their inputs, as the first of their groups do, and how many keep
    all, as those of its own group do once that was computed again."""
    starts = group_starts(setup, stage)
    own = max(start for start in starts if start <= place)
    inputs, whole = [stage.order[one] for one in starts if one < own], stage.order[own:place]
    return [(inputs.count(kind), whole.count(kind)) for kind in range(len(stage.layers))]


def highest_places(setup: Setup, stage: Stage, kind: int) -> set[int]:
    """The last layers of a kind in their groups, at whose backward a stage may be highest: the last group may be
    smaller than the one before."""
    found: dict[int, int] = {}
    starts = group_starts(setup, stage)
    for place, one in enumerate(stage.order):
        if one == kind:
            found[max(start for start in starts if start <= place)] = place
    return {*sorted(found.values())[-2:], *sorted(found.values())[:1]}
