"""How sure a step time is: the spread of residuals of comparable measured runs (split conformal prediction).

Residuals are of runs whose whole source was left out of the fit (Vovk et al. 2005; Barber et al. 2021).
"""

from __future__ import annotations

import functools
import math
from typing import Any

from distsim import catalog
from distsim.engine.resolve import Setup
from distsim.engine.step import Interval

LEVEL = 0.9
RESIDUALS = "residuals"
FEW_RUNS = 12
"""Groups with fewer runs than this say too little about a tenth of them."""


@functools.lru_cache(maxsize=1)
def residual_tables() -> dict[str, Any]:
    """Spread of residuals by group, as ``make calibrate`` wrote it."""
    tables: dict[str, Any] = catalog.load("timing", RESIDUALS)
    return tables


def group_names(setup: Setup) -> list[str]:
    """Groups of comparable runs, the most alike first."""
    framework, architecture = setup.framework.name, setup.accelerator.architecture.split()[0]
    several = "pipeline" if setup.layout.pp > 1 else "flat"
    nodes = "nodes" if setup.layout.gpus > setup.cluster.gpus_per_node else "node"
    return [
        f"{framework} {architecture} {several} {nodes}", f"{framework} {architecture} {nodes}",
        f"{framework} {architecture}", framework, architecture, "all",
    ]  # fmt: skip


def interval_of(setup: Setup, seconds: float) -> Interval:
    """The 90% interval around a prediction."""
    groups = residual_tables()["groups"]
    for index, name in enumerate(group_names(setup)):
        known = groups.get(name)
        if known is None or (known["runs"] < FEW_RUNS and name != "all"):
            continue
        wider = 1.0 + 0.1 * index
        low, high = math.exp(-known["over"] * wider), math.exp(known["under"] * wider)
        told = f"{known['runs']} measured runs ({name})" if name != "all" else f"all {known['runs']} measured runs: none is alike"
        return Interval(LEVEL, seconds * low, seconds * high, told)
    raise AssertionError("residuals.toml has no group 'all'")
