"""Fits the few free numbers of the step-time model to measured runs, and says how well it then predicts unseen ones.

Every number is a general value times a factor of the architecture, one of the framework, and one of both. Each factor
is drawn towards 1 with a strength of its own (a ridge), so that what no run tells stays at the general value. Residuals
are of log time, with Huber's loss; the runs of a source share errors and weigh the less the more they are. Where a
framework's runs come from several states of its software (specs/timing.py), each is fitted in the state that suits it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distsim.engine.fitting.table import Example, Table, nearest_states
from distsim.engine.steps.breakdown import EXPOSED
from distsim.last import for_last
from distsim.specs.timing import NAMES, Timing

ROW = 0.1
"""How far (in logarithms of time) one run lies from a model that is right for its source."""
SHARED_VARIANCE = 0.05
"""Part of that which all runs of one source have in common, whatever their layout: 20 runs tell nearly as much."""
HUBER = 0.08
"""Runs that lie farther off than this (somewhat less than ``ROW``) pull no harder; assumed, as are the two above."""
BUSY = 0.05
"""Share of a step in which a chip computes below which a run weighs less, in proportion; assumed."""
OFFSET, OFFSET_HUBER = 0.1, 0.1
"""How far all runs of one source may lie from the model for reasons of their own (cluster, settings without a cell);
and where that pulls no harder. Fitted beside the numbers and not kept: no odd source bends what holds for all."""
MOST_ROUNDS = 15
"""Steps of a fit, each with derivatives of its own, after which it ends. Assumed."""
DAMPING, RISE, FALL, LEAST_DAMPING = 0.05, 4.0, 3.0, 1e-3
"""Levenberg-Marquardt: damping at the start, as a share of the diagonal; what it grows by where a step makes things
worse and shrinks by where it helps; and the least of it, over that of the start. Usual values, assumed: they change how
fast the least loss is found."""
MOST_DAMPINGS = 6
"""Dampings that a step is tried with before the fit counts as done."""
LONGEST_STEP = 0.7
"""No factor changes by more than about two (its logarithm) in one step, within which derivatives hold; assumed."""
SETTLED = 1e-4
"""A step that lowers the loss by less than this share of it is the last; assumed."""
NUDGE = 1e-4
"""Of a logarithm, for derivatives by differences: far below any factor's spread, far above rounding."""

# How far (in logarithms) a number may plausibly lie from its prior: at once, by architecture, by family of frameworks,
# by framework, by framework and architecture.
SPREADS: dict[str, tuple[float, float, float, float, float]] = {
    "matmul": (0.04, 0.1, 0.04, 0.06, 0.1), "matmul_narrow": (0.05, 0.05, 0.04, 0.05, 0.05),
    "grouped": (0.3, 0.15, 0.2, 0.2, 0.2),
    "attention": (0.1, 0.15, 0.1, 0.15, 0.1), "stream": (0.07, 0.08, 0.07, 0.1, 0.05),
    "kernel_gap_seconds": (0.2, 0, 0.3, 0.5, 0.2), "kernel_issue_seconds": (0.3, 0, 0.4, 1, 0.4),
    "tensor_factor": (0.1, 0, 0.1, 0.2, 0), "context_factor": (0.3, 0, 0.3, 0.3, 0),
    "expert_factor": (0.3, 0, 0.3, 0.3, 0.2), "data_factor": (0.3, 0, 0.3, 0.3, 0),
    "gather_factor": (0.3, 0, 0.3, 0.3, 0),
    "exposed_fraction": (0.3, 0, 0.3, 0.3, 0), "pipeline_factor": (0.3, 0, 0.4, 0.5, 0),
    "optimizer": (0.3, 0, 0.3, 0.3, 0),
    "step_seconds": (0.3, 0, 0.3, 0.5, 0.15), "jitter": (0.3, 0.1, 0, 0, 0.1), "stall_seconds": (0, 0, 0, 0.2, 0),
    "layer_stall_seconds": (0, 0, 0, 0.2, 0),
}  # fmt: skip
LEVELS = ("general", "architecture", "family", "framework", "both")


class Factors:
    """Which factor of which level acts on which example; the vector that is fitted holds their logarithms."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.keys: list[tuple[int, str, str]] = []
        spreads: list[float] = []
        for level in range(len(LEVELS)):
            for label in sorted({self.label(e, level) for e in examples}):
                for name in NAMES:
                    if SPREADS[name][level] > 0:
                        self.keys.append((level, label, name))
                        spreads.append(SPREADS[name][level])
        self.spreads = np.array(spreads)
        self.at = {key: index for index, key in enumerate(self.keys)}

    @staticmethod
    def label(example: Example, level: int) -> str:
        """The group of an example on a level."""
        own = example.framework
        return ("", example.architecture, example.kin.family, own, f"{own}|{example.architecture}")[level]

    def index(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Per number, the positions of its factors of each example; one past the end for none."""
        none = len(self.keys)
        labels = [[(level, self.label(e, level)) for level in range(len(LEVELS))] for e in examples]
        return {
            name: np.array([[self.at.get((*label, name), none) for label in own] for own in labels]) for name in NAMES
        }

    def timing(self, vector: Any, index: dict[str, Any], examples: Sequence[Example]) -> dict[str, Any]:
        """The numbers of every example."""
        padded = np.append(vector, 0.0)
        priors = prior_values(examples)
        found = {name: priors[name] * np.exp(padded[index[name]].sum(axis=1)) for name in NAMES}
        return {**found, EXPOSED: np.where([e.one_queue for e in examples], 1.0, found[EXPOSED])}


@for_last
def prior_values(examples: Sequence[Example]) -> dict[str, Any]:
    """What fitting starts from, per example: what its framework's preset says, or that of its relative, or all do."""
    known = [dict(e.kin.prior) for e in examples]
    defaults = {name: float(Timing.model_fields[name].default) for name in NAMES}
    return {name: np.array([own.get(name, default) for own in known]) for name, default in defaults.items()}


@dataclass
class Fit:
    """Fitted factors."""

    factors: Factors
    vector: Any

    def residuals(self, table: Table) -> Any:
        """Predicted over measured, as logarithms, in each state of the software (one row per state); also for
        frameworks and architectures that were not fitted."""
        index = self.factors.index(table.examples)
        return table.residuals_by_state(self.factors.timing(self.vector, index, table.examples))


def unfitted(factors: Factors) -> Fit:
    """The priors."""
    return Fit(factors, np.zeros(len(factors.keys)))


def row_weights(examples: Sequence[Example]) -> Any:
    """Inverse variances; runs whose chips mostly wait tell little about chips and weigh less."""
    count = Counter(e.source for e in examples)
    spread = ROW**2 * (1 + SHARED_VARIANCE * (np.array([count[e.source] for e in examples]) - 1))
    return np.array([min(1.0, e.busy_fraction / BUSY) for e in examples]) / spread


def huber(distance: Any, knee: float) -> Any:
    """Half the square up to a knee, and a line beyond it."""
    size = np.abs(distance)
    return np.where(size < knee, size**2 / 2, knee * size - knee**2 / 2)


def huber_pull(distance: Any, knee: float) -> Any:
    """What Huber's loss weighs a distance by, beside the square."""
    return np.minimum(1.0, knee / np.maximum(np.abs(distance), 1e-9))


def fit(table: Table, start: Fit | None = None) -> Fit:
    """Levenberg-Marquardt on Huber's loss with the ridge."""
    factors = Factors(table.examples)
    index = factors.index(table.examples)
    vector = _start(factors, start)
    weights = row_weights(table.examples)
    sources = membership(table.examples)
    count = len(vector)
    vector = np.append(vector, np.zeros(sources.shape[1]))
    ridge = 1 / factors.spreads**2
    lam = 1.0

    def settled(vector: Any) -> Table:
        """Each run in the state of its framework's software that suits it best."""
        every = table.residuals_by_state(factors.timing(vector, index, table.examples))
        return table.in_states(nearest_states(table.examples, every))

    def loss(vector: Any) -> tuple[float, Any]:
        predicted = table.log_predicted(factors.timing(vector[:count], index, table.examples))
        rest = predicted + sources @ vector[count:] - table.log_seconds
        fits = (weights * huber(rest, HUBER)).sum() + huber(vector[count:], OFFSET_HUBER).sum() / OFFSET**2
        return float(fits + (ridge * vector[:count] ** 2).sum() / 2), rest

    for _ in range(MOST_ROUNDS):
        table = settled(vector[:count])
        best, rest = loss(vector)
        jacobian = np.hstack([_jacobian(table, factors, vector[:count], index), sources])
        pull = weights * huber_pull(rest, HUBER)
        drawn = np.append(ridge, huber_pull(vector[count:], OFFSET_HUBER) / OFFSET**2)
        hessian = (jacobian * pull[:, None]).T @ jacobian + np.diag(drawn)
        gradient = jacobian.T @ (pull * rest) + drawn * vector
        found = _descent(hessian, gradient, lam, lambda step: loss(vector + step)[0], best)  # noqa: B023
        if found is None:
            break
        step, now, lam = found
        vector, lam = vector + step, max(lam / FALL, LEAST_DAMPING)
        if best - now < SETTLED * best:
            break
    return Fit(factors, vector[:count])


def _start(factors: Factors, start: Fit | None) -> Any:
    """Where a fit begins: at another's factors, as far as it has them."""
    known = {} if start is None else {key: start.vector[i] for key, i in start.factors.at.items()}
    return np.array([known.get(key, 0.0) for key in factors.keys])


def _descent(
    hessian: Any, gradient: Any, lam: float, loss: Callable[[Any], float], best: float
) -> tuple[Any, float, float] | None:
    """The least damped step that leads below the ``best`` loss, the loss there and its damping; None if none does."""
    for _ in range(MOST_DAMPINGS):
        damped = hessian + DAMPING * lam * np.diag(np.diag(hessian))
        step = np.clip(np.linalg.solve(damped, -gradient), -LONGEST_STEP, LONGEST_STEP)
        now = loss(step)
        if now < best:
            return step, now, lam
        lam *= RISE
    return None


def membership(examples: Sequence[Example]) -> Any:
    """One column per source, with ones at its runs."""
    names, places = np.unique([e.source for e in examples], return_inverse=True)
    return np.eye(len(names))[places]


def _jacobian(table: Table, factors: Factors, vector: Any, index: dict[str, Any]) -> Any:
    """Derivative of log time by the logarithm of each factor, by differences in each number, all of them composed at
    once: a row as they are, and one for each number with that one nudged."""
    base = factors.timing(vector, index, table.examples)
    nudged = {name: np.repeat(values[None, :], len(NAMES) + 1, axis=0) for name, values in base.items()}
    for place, name in enumerate(NAMES, start=1):
        nudged[name][place] *= np.exp(NUDGE)
    at, *every = table.log_predicted(nudged)
    found = np.zeros((len(table.examples), len(vector) + 1))
    rows = np.arange(len(table.examples))
    for name, logarithms in zip(NAMES, every, strict=True):
        slope = (logarithms - at) / NUDGE
        for level in range(len(LEVELS)):
            found[rows, index[name][:, level]] += slope
    return found[:, :-1]
