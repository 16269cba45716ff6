"""Tokens of samples that are filled up to the longest of a batch, where lengths follow a gamma distribution.

Log-normal ones have too few short texts, so that runs with a low cap would compute near the chip's peak
(docs/finetuning.md). The distribution's ``shape`` is the square of its mean over its deviation.
"""

from __future__ import annotations

import math
import sys

from distsim.arrays import Number, each, minimum, where
from distsim.formula import formula

LENGTHS = 200
"""Lengths at which the distribution of the longest sample is summed."""
HALVINGS = 30
"""Until the mean of single samples is known to a millionth."""
FAR = 40.0
"""Deviations, and units of scale, beyond which nothing of a gamma distribution is left that a number could hold."""
TINY = 1e-12
"""Where a series ends."""

_LONGEST = "derived: the integral of one minus the distribution of the longest, its power of samples; midpoints"


@formula(unit="1", source="Abramowitz and Stegun 1964, Handbook of Mathematical Functions, 6.5.29")
def gamma_share(shape: Number, value: Number) -> Number:
    """The gamma distribution's share below a value of unit scale, by the series of the incomplete gamma function."""
    return each(_gamma_series, shape, value)


def _gamma_series(shape: float, value: float) -> float:
    if value > _far(shape):
        return 1.0
    term = total = 1 / shape
    count = shape
    while term > total * TINY:
        count += 1
        term *= value / count
        total += term
    return max(total * math.exp(shape * math.log(value) - value - math.lgamma(shape)), sys.float_info.min)


@formula(unit="tokens", source="derived: the truncated mean of a gamma distribution is its mean at one more shape")
def kept_tokens(shape: Number, mean: Number, cap: Number) -> Number:
    """Mean length of samples where trainers drop those above ``cap``."""
    below = gamma_share(shape + 1, cap * shape / mean) / gamma_share(shape, cap * shape / mean)
    return minimum(mean * below, cap)


@formula(unit="tokens", source=_LONGEST)
def longest_tokens(shape: Number, mean: Number, cap: Number, samples: Number, kept: Number = 1.0) -> Number:
    """Mean length of the longest of some samples that are cut off at ``cap``; or, with the share of them that is
    ``kept``, where longer ones are dropped."""
    reach = minimum(cap * shape / mean, _far(shape))
    shares = [minimum(gamma_share(shape, reach * (step + 0.5) / LENGTHS) / kept, 1.0) for step in range(LENGTHS)]
    return reach * mean / shape * (1 - sum(share**samples for share in shares) / LENGTHS)


def _far(shape: Number) -> Number:
    """Units of scale above which a gamma distribution has nothing left: midpoints up to a far cap would miss it all."""
    return shape + FAR * shape**0.5 + FAR


@formula(unit="tokens", source=f"{_LONGEST}; dropped samples leave the distribution below the cap")
def longest_kept_tokens(shape: Number, mean: Number, cap: Number, samples: Number) -> Number:
    """Mean length of the longest of several samples where trainers drop those above ``cap``; of hardly any that are
    kept, the cap."""
    kept = gamma_share(shape, cap * shape / mean)
    return where(kept > sys.float_info.min, longest_tokens(shape, mean, cap, samples, kept), cap)


@formula(unit="tokens", source="the inverse of longest_tokens, by halving")
def single_tokens(shape: Number, longest: Number, cap: Number, samples: Number) -> Number:
    """Mean length of single samples whose ``longest`` of several, cut off at ``cap``, is so long on average."""
    low, high = 0.0 * cap, 1.0 * cap
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = longest_tokens(shape, middle, cap, samples) < longest
        low, high = where(below, middle, low), where(below, high, middle)
    return high
