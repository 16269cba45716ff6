"""How far experts and their ranks are from the mean number of tokens."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.formulas.compute import BUSIEST_RANK, LEARNED_SPREAD, chance_spread


def busiest_rank(setup: Setup) -> Number:
    """Work of the busiest rank's experts over the mean: as stated, none where a benchmark balances its router."""
    if setup.job.capacity_factor is not None:  # slots are as many everywhere
        return 1.0
    stated = setup.job.expert_imbalance
    usual = BUSIEST_RANK if setup.kernels.router == "learned" else 1.0
    return where(setup.layout.ep > 1, usual if stated is None else stated, 1.0)


def stated_rank(setup: Setup) -> Number:
    """The busiest rank's share as far as a job states it, which then holds for all work of experts; the usual share was
    found beside what is as fast as dense products (ALONE, engine/kernels/compute.py)."""
    stated = setup.job.expert_imbalance
    return 1.0 if stated is None else where(setup.layout.ep > 1, stated, 1.0)


def slotted(setup: Setup) -> bool:
    """Whether experts are a batch of products with slots of one capacity, and not groups of any size."""
    return setup.job.capacity_factor is not None and setup.kernels.expert_slots == "one-hot"


def busiest_exchange(setup: Setup) -> Number:
    """The busiest rank's share of exchanges; 1 where a job states an imbalance, which the flows carry already
    (engine/exchanges/model.py)."""
    return busiest_rank(setup) if setup.job.expert_imbalance is None else 1.0


def expert_spread(setup: Setup, tokens: Number) -> Number:
    """Half the width, over the mean, of how tokens of experts are spread: as chance has it where a benchmark draws
    experts at random, none where it takes them in turn, every expert has every token or as many slots."""
    if setup.job.capacity_factor is not None:
        return 0
    if setup.kernels.expert_tokens == "all" or setup.kernels.router == "round-robin":
        return 0
    return chance_spread(tokens) if setup.kernels.router == "balanced" else LEARNED_SPREAD
