"""How sure a peak of memory is: what measured runs needed, over what had been predicted for them."""

from typing import Any, NamedTuple

from distsim.engine.calibrated import LEVEL, PEAKS, calibrated, kept_while_fitted

TABLE = "measured_over_predicted"
QUANTILES = 20
"""Quantiles that the table holds lie this many to one apart, from the least ratio to the largest."""
TIGHT = 0.6
"""Less than this share of measured runs that would fit, a job may well not."""
ROOM = 0.1
"""Share of the memory that is proposed to stay free then."""


class PeakError(NamedTuple):
    """Bytes between which 90% and half of measured runs would lie, and the share of them that would fit."""

    low: float
    high: float
    half: tuple[float, float]
    fitting: float
    runs: int
    sources: int

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {"low": round(self.low), "high": round(self.high), "level": LEVEL,
                "half": [round(size) for size in self.half], "fitting": round(self.fitting, 3),
                "runs": self.runs, "sources": self.sources}  # fmt: skip


@kept_while_fitted(1, PEAKS)
def _measured() -> dict[str, Any]:
    table: dict[str, Any] = calibrated(PEAKS, TABLE.__eq__, TABLE)[TABLE]
    return table


def peak_error(peak: float, capacity: float) -> PeakError:
    """What measured runs say of a predicted ``peak`` in bytes on a card that holds ``capacity`` bytes.

    No run of the user's own is known, so each source of runs weighs alike (presets/timing/peaks.toml).
    """
    table = _measured()
    at = table["at"]
    tail = (1 - LEVEL) / 2
    low, first, last, high = (peak * _value(at, share) for share in (tail, 0.25, 0.75, 1 - tail))
    return PeakError(
        low, high, (first, last), share_below(at, capacity / peak) if peak else 1.0, table["runs"], table["sources"]
    )


def _value(at: list[float], share: float) -> float:
    place = share * (len(at) - 1)
    before = min(int(place), len(at) - 2)
    return at[before] + (place - before) * (at[before + 1] - at[before])


def share_below(at: list[float], ratio: float) -> float:
    """Share of runs whose ratio is no larger, between quantiles that are equally far apart."""
    if ratio >= at[-1]:
        return 1.0
    above = next(place for place, value in enumerate(at) if value > ratio)
    if not above:
        return 0.0
    return (above - 1 + (ratio - at[above - 1]) / (at[above] - at[above - 1])) / (len(at) - 1)
