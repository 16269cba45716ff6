"""How much longer the steps of real campaigns take than those of benchmark runs, by whole runs that were published."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from distsim import catalog

PACE = "pace"


def campaign_pace() -> float:
    """Steps of campaigns over steps as predicted from benchmark runs (presets/timing/pace.toml)."""
    return float(catalog.raw("timing", PACE)["stretch"])


def pace_source() -> str:
    """Where that number is from."""
    return str(catalog.raw("timing", PACE)["source"]["stretch"])


def fitted_pace(ratios: Sequence[float]) -> float:
    """The median of published over predicted hours."""
    return statistics.median(ratios)


def left_one_out(ratios: Sequence[float]) -> list[float]:
    """Error of each prediction at the pace that all other runs have: predicted over published, less one."""
    return [fitted_pace([*ratios[:place], *ratios[place + 1 :]]) / ratio - 1 for place, ratio in enumerate(ratios)]
