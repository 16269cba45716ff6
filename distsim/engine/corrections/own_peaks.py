"""A note on peaks of memory that the user's own runs were measured to have."""

from __future__ import annotations

import math

from distsim import catalog
from distsim.engine.calibrated import FITTED, KIND
from distsim.engine.jobs.resolve import Setup
from distsim.units import GIB

LEAST = 0.01
"""Share of a peak below which a note on it is of no use: figures are printed to about as much."""


def own_peak_note(setup: Setup, peak: float) -> str:
    """What the user's runs say of a job's predicted ``peak`` in bytes; nothing where none of them is like it."""
    if catalog.origin(KIND, FITTED) == "shipped":
        return ""
    from distsim.engine.corrections.correction import peak_correction_of

    factor = math.exp(peak_correction_of(setup).logarithm)
    if abs(factor - 1) < LEAST:
        return ""
    return (
        f"your measured runs like this one held {factor:.2f} times their predicted peaks, which is "
        f"{peak * factor / GIB:.1f} GiB here"
    )
