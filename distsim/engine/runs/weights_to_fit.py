"""The format of a measured run's weights where nobody says it: bf16 where fp32 ones would not have fitted."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.jobs.resolve import Setup
from distsim.engine.memory import memory_of
from distsim.engine.runs.contradictions import too_large
from distsim.engine.runs.precision import FP32_WEIGHTS
from distsim.engine.runs.recompute_to_fit import TAKEN
from distsim.interop.runs import Run, precision_notes

PLAIN, NARROW = "bf16", "pure-bf16"
"""What a cell says that leaves the format of weights open, and the recipe that has all of them in bf16."""
BY_HAND = "torch"
"""The family of frameworks whose jobs load a model in the format that their author names (``torch_dtype`` of
transformers' from_pretrained, ``model.to``)."""
LEAST_SHARE = 2 / 3
"""Share of a card's memory that states take at least where they are what does not fit; else activations may be counted
too high. Assumed."""
STATES = ("parameters", "gradients", "optimizer")


def with_narrow_weights(run: Run, setup: Setup) -> Run | None:
    """The row with weights, gradients and moments in bf16, where its cell calls it no more than bf16, its software
    leaves the format of weights to whoever calls it, and it would not have fitted with fp32 ones. It ran, so they were
    not fp32. None where that cannot be told."""
    cell = (run.text("precision") or "").lower()
    open_ = setup.framework.family == BY_HAND and setup.precision.name in FP32_WEIGHTS and cell == PLAIN
    if not open_ or setup.tuning is not None or _said_wide(run):
        return None
    memory = memory_of(setup)
    states = sum(memory.worst.categories[name] for name in STATES)
    if not too_large(setup, memory.peak) or states < LEAST_SHARE * setup.accelerator.capacity:
        return None
    return replace(run, cells={**run.cells, "precision": NARROW})


def _said_wide(run: Run) -> bool:
    return precision_notes.casts_wide_weights(run) or precision_notes.weighs_32_bits(run)


def as_taken(setup: Setup) -> Setup:
    """The setup of such a row, which says that nobody named its format."""
    return replace(setup, origins={**setup.origins, "precision": TAKEN})


def assumed_weights(setup: Setup) -> str:
    """What is taken for granted of weights that nobody names the format of."""
    taken = setup.origins.get("precision") == TAKEN
    return "fp32 weights would not fit: assumed weights, gradients and moments in bf16" if taken else ""
