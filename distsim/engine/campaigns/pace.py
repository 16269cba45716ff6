"""How much longer the steps of real campaigns take than those of benchmark runs, by whole runs that were published."""

from __future__ import annotations

import math
from typing import Any

from distsim.engine.calibrated import PACE, calibrated, kept_while_fitted


@kept_while_fitted(1, PACE)
def _preset() -> dict[str, Any]:
    return calibrated(PACE, lambda table: True)


def campaign_pace() -> float:
    """Steps of campaigns over steps as predicted from benchmark runs (presets/timing/pace.toml)."""
    return float(_preset()["stretch"])


def campaign_ends(low: float, high: float) -> tuple[float, float]:
    """Ends of a 90% interval of a campaign's steps over their prediction: those of step times, or where that is wider
    those of whole runs that were published (their hours at the common pace, over what was predicted)."""
    preset = _preset()
    return min(low, math.exp(-preset["over"])), max(high, math.exp(preset["under"]))


def pace_source(pace: float) -> str:
    """Where a pace is from: the user, or the preset with what is known of its error."""
    if pace != campaign_pace():
        return "--pace"
    preset = _preset()
    left_out = f"{preset['source']['left_out_error']}: {preset['left_out_error']:.0%}"
    return f"{preset['source']['stretch']}; {left_out}; --pace sets it (docs/goodput.md)"
