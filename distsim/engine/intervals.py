"""How sure a step time is: the spread of residuals of comparable measured runs (split conformal prediction).

Residuals are of runs that were left out of fit and correction (Vovk et al. 2005; Barber et al. 2021), and where no run
is near, of runs whose whole source was.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from distsim import catalog
from distsim.engine.compose import products_of, stage_numbers
from distsim.engine.likeness import Correction
from distsim.engine.step import Interval
from distsim.engine.work import Work

LEVEL = 0.9
RESIDUALS = "residuals"
FAR = "unlike"
FEW_RUNS = 12
"""Groups with fewer runs than this say too little about a tenth of them."""


PACES = {"busy": 0.35, "half-busy": 0.2, "waiting": 0.0}
"""Least share of a step that products take at the best measured rates, by word: what waits is known less well."""


def group_names(framework: str, architecture: str, word: str, busy: float) -> list[str]:
    """Groups of comparable runs, the most alike first; ``word`` says how near the nearest measured run is, ``busy``
    what share of the predicted step is products."""
    near = [f"{framework} {architecture} {word}", f"{framework} {word}"]
    pace = next(pace for pace, least in PACES.items() if busy >= least)
    return [*near, *([f"any {word}"] if word != FAR else []), f"any {FAR} {pace}"]


@functools.lru_cache(maxsize=1024)
def residuals_of(names: tuple[str, ...]) -> dict[str, Any]:
    """Spread of residuals of groups, as ``make calibrate`` wrote it."""
    wanted = {f"groups.{name}" for name in names}
    groups: dict[str, Any] = catalog.tables("timing", RESIDUALS, wanted.__contains__)["groups"]
    return groups


def interval_of(work: Work, seconds: float, correction: Correction) -> Interval:
    """The 90% interval around a prediction."""
    setup = work.setup
    architecture = setup.accelerator.architecture.split()[0]
    busy = products_of(stage_numbers(work), setup.layout.micro_batches) / seconds
    names = tuple(group_names(setup.framework.name, architecture, correction.word, float(busy)))
    groups = residuals_of(names)
    for name in names:
        known = groups.get(name)
        if known is not None and known["runs"] >= FEW_RUNS:
            told = f"{known['runs']} measured runs ({name})"
            return Interval(LEVEL, seconds * math.exp(-known["over"]), seconds * math.exp(known["under"]), told)
    raise AssertionError(f"residuals.toml has no group {names[-1]!r}")
