"""Measured runs as numbers and as arrays, for fitting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distsim.engine.corrections.likeness import Likeness, fullness_of, likeness_of
from distsim.engine.corrections.own_runs import OWN
from distsim.engine.corrections.stalls import distinct_state
from distsim.engine.jobs.kin import kin_of
from distsim.engine.jobs.lacking import measured_as
from distsim.engine.jobs.resolve import Setup
from distsim.engine.steps.breakdown import one_queue
from distsim.engine.steps.compose import compose, layout_numbers, stage_numbers
from distsim.engine.steps.stage_seconds import products_of
from distsim.engine.steps.work import work_of
from distsim.specs.layout import Layout
from distsim.specs.timing import STATES, Kin

RESOLVED = {*Layout._fields, "model", "gpu", "gpus", "dp", "global_batch", "gpu_power", "cluster", "framework",
            "precision", "recompute", "optimizer", "offload", "compile"}  # fmt: skip
"""Options of a job that its setup has resolved, blank ones too."""


@dataclass
class Example:
    """One measured run as numbers."""

    id: str
    source: str
    kin: Kin
    """Under whose names its framework's runs are found."""
    architecture: str
    """What its chip is treated like."""
    chip: str
    """The chip's own architecture, apart where its products run in full precision for want of units."""
    seconds: float
    stages: list[dict[str, float]]
    layout: dict[str, float]
    likeness: Likeness
    one_queue: bool = False
    """Whether nothing hides what its chips exchange."""
    fullness: float = 0.0
    """Peak of memory over what a GPU has, where the framework's software had several states."""
    timed_by: str = ""
    """The cell that the time comes from."""
    assumed: str = ""
    """Whose profile and recipe stand for what the run names."""
    what: str = ""
    """What was measured, of a user's own run (``setting_of``)."""
    setting: int | None = None
    """The number of that, which repeats share; None for shipped runs."""

    @property
    def framework(self) -> str:
        """Its name."""
        return self.kin.name

    @property
    def busy_fraction(self) -> float:
        """Share of the measured time that the products of the busiest stage take at the best measured rates."""
        return float(products_of(self.stages, self.layout["micro_batches"])) / self.seconds


def example_of(setup: Setup, seconds: float, id: str, source: str, year: float) -> Example:
    """A run's setup as numbers to fit to."""
    kin = kin_of(setup.framework, setup.compiled)
    return Example(
        id, source, kin, setup.accelerator.generation, measured_as(setup.accelerator, setup.precision), seconds,
        stage_numbers(work_of(setup)),
        layout_numbers(setup), likeness_of(setup, year, source), one_queue(setup),
        fullness_of(setup) if kin.several else 0.0,
    )  # fmt: skip


def as_own(example: Example) -> Example:
    """A run of the user's own: a job of the user's is another of these."""
    *names, source = example.likeness.names
    return replace(example, likeness=example.likeness._replace(names=(*names, OWN + source)))


def setting_of(setup: Setup) -> str:
    """What a run measures, whoever measured it and in whichever year: kernels, which follow the release, do not count.
    What a blank cell stands for is what a cell says."""
    place = likeness_of(setup, 0.0)
    options = {name: value for name, value in setup.job if value is not None and name not in RESOLVED}
    resolved = (setup.optimizer.name, setup.offload, setup.compiled, setup.gpu_power, setup.cluster.model_dump())
    return str((setup.framework.name, place, setup.layout, resolved, options))


def by_setting(examples: Sequence[Example]) -> list[Example]:
    """A user's own runs with their settings numbered: what was measured again, or pasted twice, has the number of the
    first, for each would else tell what is to be predicted of the other."""
    numbers: dict[str, int] = {}
    return [replace(one, setting=numbers.setdefault(one.what, len(numbers))) for one in examples]


def setting_counts(examples: Sequence[Example]) -> dict[str, int]:
    """How many settings of the user's own were measured under each framework, the most first."""
    distinct = {(one.framework, one.setting) for one in examples if one.setting is not None}
    return dict(Counter(framework for framework, _ in sorted(distinct)).most_common())


def repeats(examples: Sequence[Example]) -> Any:
    """Which pairs of runs are one run, or of one setting."""
    same = np.eye(len(examples), dtype=bool)
    numbers = np.array([-1 if one.setting is None else one.setting for one in examples])
    return same | ((numbers[:, None] == numbers) & (numbers >= 0))


@dataclass
class Table:
    """Examples as arrays, one slot per distinct stage."""

    examples: list[Example]
    stages: list[dict[str, Any]]
    layout: dict[str, Any]
    log_seconds: Any

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Table:
        """Stages that an example lacks have count 0."""
        names = max((list(e.stages[0]) for e in examples), key=len)  # steps laid end to end have some more
        stages = [
            {
                name: np.array([e.stages[slot].get(name, 0.0) if slot < len(e.stages) else 0.0 for e in examples])
                for name in names
            }
            for slot in range(max(len(e.stages) for e in examples))
        ]
        layout = {name: np.array([e.layout[name] for e in examples], float) for name in examples[0].layout}
        return cls(list(examples), stages, layout, np.log([e.seconds for e in examples]))

    def subset(self, mask: Any) -> Table:
        """The examples that a mask keeps."""
        return Table(
            [e for e, keep in zip(self.examples, mask, strict=True) if keep],
            [{name: values[mask] for name, values in slot.items()} for slot in self.stages],
            {name: values[mask] for name, values in self.layout.items()}, self.log_seconds[mask],
        )  # fmt: skip

    def log_predicted(self, timing: dict[str, Any]) -> Any:
        """Logarithm of the predicted step time of every example."""
        return np.log(sum(compose(self.stages, self.layout, timing).values()))

    def residuals_by_state(self, timing: dict[str, Any]) -> Any:
        """Predicted over measured, as logarithms, in each state of the software (one row per state)."""
        plain = self.log_predicted(timing) - self.log_seconds
        some = np.array([e.kin.several for e in self.examples])
        found = np.repeat(plain[None, :], len(STATES), axis=0)
        if some.any():
            part, own = self.subset(some), {name: values[some] for name, values in timing.items()}
            for state in STATES:
                found[state, some] = part.in_states(state).log_predicted(own) - part.log_seconds
        return found

    def in_states(self, states: Any) -> Table:
        """This table with the runs' software in these states."""
        return replace(self, layout={**self.layout, "state": np.zeros(len(self.examples), int) + states})


def allowed_states(examples: Sequence[Example]) -> Any:
    """The states that time each example in its own way, one row per state."""
    layouts = [(e.kin.several, e.layout) for e in examples]
    distinct = [
        [several and distinct_state(state, y["tp"], y["pp"], y["nodes"]) == state for several, y in layouts]
        for state in STATES[1:]
    ]
    return np.array([[True] * len(layouts), *distinct])


def nearest_states(examples: Sequence[Example], residuals: Any) -> Any:
    """The state in which each run deviates least."""
    return np.where(allowed_states(examples), np.abs(residuals), np.inf).argmin(axis=0)


def in_state(residuals: Any, states: Any) -> Any:
    """The residual of each run in its given state. Shapes: residuals (states, runs), states (runs,)."""
    return residuals[states, np.arange(residuals.shape[1])]
