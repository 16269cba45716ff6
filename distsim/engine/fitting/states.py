"""The states of software that measured runs were in, and what they say of the states of jobs like them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distsim.engine.corrections.likeness import vote_place
from distsim.engine.corrections.stalls import FARTHEST, NOISE, SPREAD, closeness, distinct_state, likeliest
from distsim.engine.fitting.table import Example, allowed_states
from distsim.specs.timing import CHECKED, STALLED


def shares_of(examples: Sequence[Example], residuals: Any) -> Any:
    """How likely each run was in each state, by its residuals in all of them (one row per state)."""
    likely = np.exp(-np.minimum(np.abs(residuals), FARTHEST) / SPREAD) * allowed_states(examples)
    return likely / likely.sum(axis=0)


def voted(known: Sequence[Example], shares: Any, new: Sequence[Example]) -> tuple[Any, Any]:
    """The states that known runs give to new ones, and how likely they are."""
    near = _closeness(new, known)
    return _states(new, near @ _weights(known, shares))


def votes_of(examples: Sequence[Example], shares: Any) -> tuple[Any, Any, Any]:
    """Each run's say in the states of others, and the state that all others give to it, with how likely it is."""
    weights = _weights(examples, shares)
    inverse = np.linalg.inv(_closeness(examples, examples) + NOISE * np.eye(len(examples)))
    alone = shares[[CHECKED, STALLED]].T - weights / np.diag(inverse)[:, None]
    return (weights, *_states(examples, alone))


def _weights(examples: Sequence[Example], shares: Any) -> Any:
    """Kriging weights (Rasmussen and Williams 2006, 2.2) of the two states that are not plain."""
    near = _closeness(examples, examples) + NOISE * np.eye(len(examples))
    return np.linalg.solve(near, shares[[CHECKED, STALLED]].T)


def _closeness(one: Sequence[Example], other: Sequence[Example]) -> Any:
    """How alike runs are as far as states go: not at all where somebody else measured, with software of his own."""
    a, b = (np.array([vote_place(e.likeness, e.fullness) for e in examples]).T for examples in (one, other))
    mine, yours = (np.array([e.likeness.names[-1] for e in examples]) for examples in (one, other))
    return closeness([row[:, None] for row in a], [row[None, :] for row in b]) * (mine[:, None] == yours[None, :])


def _states(examples: Sequence[Example], shares: Any) -> tuple[Any, Any]:
    found, sure = likeliest(shares[:, 0], shares[:, 1])
    layouts = [e.layout for e in examples]
    states = [distinct_state(int(state), y["tp"], y["pp"], y["nodes"]) for state, y in zip(found, layouts, strict=True)]
    return np.array(states, int), np.clip(sure, 0, 1)
