"""How many more tokens than the mean the busiest expert parallel rank has: all others wait for it."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.resolve import Setup
from distsim.formulas.compute import BUSIEST_RANK


def busiest_rank(setup: Setup) -> Number:
    """Work of the busiest rank's experts over the mean: as stated, none where a benchmark balances its router."""
    stated = setup.job.expert_imbalance
    usual = 1.0 if setup.kernels.router == "balanced" else BUSIEST_RANK
    return where(setup.layout.ep > 1, usual if stated is None else stated, 1.0)


def busiest_exchange(setup: Setup) -> Number:
    """The same of its exchanges, which carry a stated imbalance already (engine/traffic_model.py)."""
    return busiest_rank(setup) if setup.job.expert_imbalance is None else 1.0
