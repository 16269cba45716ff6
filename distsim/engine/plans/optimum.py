"""The compute-optimal model for a budget: how long it pays for the machines of each option, and which trains most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from distsim.engine.campaigns.prices import RESERVED_YEARS
from distsim.engine.plans.besides import Besides
from distsim.engine.plans.choice import Wish
from distsim.engine.plans.on_time import days_of
from distsim.engine.plans.plan import LONGEST_DAYS, Option
from distsim.formulas import scaling
from distsim.units import DAY, YEAR

ROUNDING = 1e-9
"""Share by which a budget may miss what it was computed from."""


class Optimum(NamedTuple):
    """The largest compute-optimal model that a budget trains on one of some options."""

    parameters: float
    dollars: float
    """The budget: for machines, what is stored meanwhile, and the checkpoint that leaves."""
    days: float
    option: Option


class Paid(NamedTuple):
    """What is paid at once for an option's machines and what is stored meanwhile: a term of a reservation, the life of
    a machine that is bought; by the hour as much as one wants, here for the run."""

    days: float
    dollars: float
    whole: bool
    most: float = math.inf
    """How often it can be paid."""


def optimum(
    found: Sequence[Option], chosen: Option, wish: Wish, flops: float, besides: Callable[[Option], Besides],
    life_days: float,
) -> Optimum | None:  # fmt: skip
    """By what the options train of a run of ``flops`` in the days that a budget pays for, up to the deadline; for what
    has to be paid for ``chosen`` where none is stated. None where the budget pays for no option. Failures and machines
    that stand idle are in an option's days and dollars; bought machines last ``life_days``."""
    extra = besides(chosen)
    own = paid(chosen, extra, life_days)
    budget = wish.dollars or own.dollars * (chosen.terms or 1) + (extra.egress_dollars or 0.0)
    most = Optimum(0.0, budget, 0.0, chosen)
    for one in found:
        days = min(days_for(one, besides(one), budget, life_days), LONGEST_DAYS)
        if wish.days is not None:
            days = min(days, wish.days * one.days / days_of(one, wish.confidence))
        parameters = float(scaling.optimal_parameters(flops * days / one.days))
        if parameters > most.parameters:
            most = Optimum(parameters, budget, days, one)
    return most if most.parameters else None


def paid(option: Option, extra: Besides, life_days: float) -> Paid:
    """What is paid at once for an option."""
    stored_per_day = (extra.storage_dollars or 0.0) / option.days
    if option.quote.owned:
        days = max(life_days, option.days)
        return Paid(days, option.payable_dollars + stored_per_day * days, whole=True, most=1)
    if option.terms is None:
        return Paid(option.days, option.dollars + stored_per_day * option.days, whole=False)
    days = RESERVED_YEARS[option.quote.term] * YEAR / DAY
    return Paid(days, option.payable_dollars / option.terms + stored_per_day * days, whole=True)


def days_for(option: Option, extra: Besides, dollars: float, life_days: float) -> float:
    """Days for which so many dollars pay the machines of an option, what is stored meanwhile, and the checkpoint that
    leaves at the end."""
    each = paid(option, extra, life_days)
    times = max(dollars - (extra.egress_dollars or 0.0), 0.0) / each.dollars
    return each.days * min(math.floor(times * (1 + ROUNDING)) if each.whole else times, each.most)
