"""Which share of an option's runs ends in time: the step time varies as its interval says."""

from __future__ import annotations

import math

from distsim.engine.plans.plan import Candidate, Option

Z90 = 1.645
"""Standard deviations from the middle to either end of a 90% interval of a normal distribution."""
EVEN = 0.5
"""Share of the runs that end before the days of an option: their median."""
SURE = 0.8
"""Options that keep to a deadline in fewer of their runs are told to be unsure; assumed."""


def spread(one: Candidate) -> tuple[float, float]:
    """Standard deviations of the logarithm of the step time, below and above what is predicted."""
    if one.step_low <= 0:
        return 0.0, 0.0
    ends = one.step_seconds / one.step_low, one.step_high / one.step_seconds
    return max(math.log(ends[0]) / Z90, 0.0), max(math.log(ends[1]) / Z90, 0.0)


def share_within(option: Option, days: float) -> float:
    """Share of the runs that take no more than so many days, by the interval of their days alone; simulated campaigns,
    in which failures come by chance as well, differ from it by less than a hundredth."""
    below, above = spread(option.candidate)
    apart = math.log(days / option.days)
    deviation = below if apart < 0 else above
    if not deviation:
        return 1.0 if apart >= 0 else 0.0
    return (1 + math.erf(apart / deviation / math.sqrt(2))) / 2


def days_of(option: Option, share: float) -> float:
    """Days that such a share of the runs does not exceed."""
    if share == EVEN:
        return option.days
    from statistics import NormalDist

    below, above = spread(option.candidate)
    z = NormalDist().inv_cdf(share)
    return option.days * math.exp(z * (below if z < 0 else above))
