"""Notes on options that no layout in a plan's answer uses, so that nobody assumes that they had an effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distsim.engine.layouts.bounds import Bounds
from distsim.engine.layouts.variants import READ_BEYOND_ONE
from distsim.engine.plans.plan import Option
from distsim.specs.flags import flag
from distsim.specs.job import Job

OF_JOB = {**{option: degree for degree, option in READ_BEYOND_ONE.items()}, "loss_parallel": "tp",
          "no_sync": "micro_batches"}  # fmt: skip
"""Options of a job, and the number of a layout that has to be more than one for them to be read."""
OF_LAYOUT = {"schedule": "pp", "sequence_parallel": "tp", "etp": "ep"}
"""The same for options that bound the search."""
WORDS = {"micro_batches": "micro-batches per step"}


def unread_notes(job: Job, bounds: Bounds, options: Sequence[Option]) -> list[str]:
    """A note for each option that is stated and that no layout of the plan reads."""
    layouts = [option.candidate.layout for option in options]
    stated = {flag(name, value): degree for name, degree in OF_JOB.items() if (value := getattr(job, name)) is not None}
    stated |= {flag(name): degree for name, degree in OF_LAYOUT.items() if name in bounds.given}
    return [
        f"{typed} has no effect: {WORDS.get(degree, degree)} is 1 in every option"
        for typed, degree in stated.items() if _alone(degree, layouts)
    ]  # fmt: skip


def _alone(degree: str, layouts: Sequence[Mapping[str, Any]]) -> bool:
    return bool(layouts) and all(layout[degree] == 1 for layout in layouts)
