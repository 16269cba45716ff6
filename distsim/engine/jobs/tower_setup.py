"""The setup that a vision tower's rows are timed in: its own shape, tokens and kernels in the decoder's place."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.jobs.resolve import Setup
from distsim.layers.names import TOWER_KIND


def setup_of_row(setup: Setup, name: str) -> Setup:
    """The setup for a block or row of that name: the tower's own, where it belongs to one."""
    tower = setup.model.shown_tower
    if tower is None or not name.startswith(TOWER_KIND):
        return setup
    from distsim.layers.tower import tower_context

    own = tower_context(setup.context(), tower, tower.seen + tower.learned_tokens)
    return replace(setup, model=own.model, layout=own.layout, kernels=own.kernels, tower_kernels=None)
