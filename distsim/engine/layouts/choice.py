"""A layout that a search has found, computed again by itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from distsim.engine.jobs.resolve import resolve
from distsim.engine.layouts.fold import setup_at
from distsim.engine.layouts.ranking import Found
from distsim.engine.layouts.variants import FIXED
from distsim.engine.step import step_of
from distsim.engine.steps.report import StepReport
from distsim.engine.steps.simulated import simulated_seconds


@dataclass(frozen=True, repr=False, eq=False)
class Choice:
    """The layout with its own step."""

    report: StepReport
    found: Found

    def __repr__(self) -> str:
        return f"Choice({self.report!r})"

    @property
    def seconds(self) -> float:
        """Time of one optimizer step."""
        return self.report.seconds

    @property
    def options(self) -> dict[str, Any]:
        """All that a job of it states, besides the model."""
        job = self.report.setup.job
        layout = setup_at(self.report.setup, self.found.layout)
        fields = job.model_fields_set - {"model", "stage_layers", *layout}
        stated = {name: getattr(job, name) for name in type(job).model_fields if name in fields}
        return {name: value for name, value in (stated | layout).items() if value is not None}

    @cached_property
    def simulated_seconds(self) -> float | None:
        """The step with its pipeline run by the event simulation."""
        return simulated_seconds(self.report)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract, with what its time is made of."""
        report = self.report
        return {
            "layout": report.setup.written(), "options": self.options, "seconds": report.seconds, "mfu": report.mfu,
            "simulated_seconds": self.simulated_seconds, "peak_memory": report.memory.peak,
            "tokens_per_second": report.tokens_per_second,
            "breakdown": dict(report.breakdown),
        }  # fmt: skip


Steps = dict[tuple[int, tuple[int, ...]], StepReport]
"""Steps of found layouts by what tells these from others."""


def choice(found: Found, known: Steps) -> Choice:
    """A found layout, computed again by ``distsim step`` unless that is known."""
    if found.name in known:
        return Choice(known[found.name], found)
    base = found.group.setup
    options = setup_at(base, found.layout)
    job = base.job.model_copy(update={**dict.fromkeys(FIXED), **options})
    same = {"accelerator": base.accelerator, "cluster": base.cluster, "framework": base.framework}
    report = known[found.name] = step_of(resolve(job, same))
    return Choice(report, found)
