"""How sure a step time is: the spread of residuals of comparable measured runs (split conformal prediction).

Residuals are of runs that were left out of fit and correction (Vovk et al. 2005; Barber et al. 2021), and where no run
is near, of runs whose whole source was.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from distsim import catalog
from distsim.engine.likeness import Correction
from distsim.engine.resolve import Setup
from distsim.engine.step import Interval

LEVEL = 0.9
RESIDUALS = "residuals"
FEW_RUNS = 12
"""Groups with fewer runs than this say too little about a tenth of them."""


def group_names(framework: str, architecture: str, word: str) -> list[str]:
    """Groups of comparable runs, the most alike first; ``word`` says how near the nearest measured run is."""
    return [f"{framework} {architecture} {word}", f"{framework} {word}", f"any {word}", "any unlike"]


@functools.lru_cache(maxsize=1024)
def residuals_of(names: tuple[str, ...]) -> dict[str, Any]:
    """Spread of residuals of groups, as ``make calibrate`` wrote it."""
    wanted = {f"groups.{name}" for name in names}
    groups: dict[str, Any] = catalog.tables("timing", RESIDUALS, wanted.__contains__)["groups"]
    return groups


def interval_of(setup: Setup, seconds: float, correction: Correction) -> Interval:
    """The 90% interval around a prediction."""
    architecture = setup.accelerator.architecture.split()[0]
    names = tuple(group_names(setup.framework.name, architecture, correction.word))
    groups = residuals_of(names)
    for name in names:
        known = groups.get(name)
        if known is not None and known["runs"] >= FEW_RUNS:
            told = f"{known['runs']} measured runs ({name})"
            return Interval(LEVEL, seconds * math.exp(-known["over"]), seconds * math.exp(known["under"]), told)
    raise AssertionError("residuals.toml has no group 'any unlike'")
