"""What the timing of a measured collective adds to it, as ``presets/links/timers.toml`` states it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from distsim.errors import DistsimError, did_you_mean
from distsim.units import MICROSECOND

TELLING = 10.0
"""A row tells of links where it takes so many times what its timer scatters by."""


class Timing(NamedTuple):
    """Seconds that are the timer's, not the collective's."""

    call: float = 0.0
    """Of every call."""
    scatter: float = 0.0
    """How far calls of one job differ on one node."""
    scatter_far: float = 0.0
    """The same on several nodes."""
    launch: float = 0.0
    """For each GPU of a process, where short messages may hide behind it."""

    def tells(self, seconds: float, far: bool) -> bool:
        """Whether a row tells of links."""
        return seconds - self.call > TELLING * (self.scatter_far if far else self.scatter)


@functools.lru_cache(maxsize=1)
def timers() -> dict[str, Any]:
    """The file's tables."""
    from distsim import catalog

    data: dict[str, Any] = catalog.load("links", "timers")
    return data


@functools.lru_cache(maxsize=64)
def timing_of(timed_by: str, processes: str, short: bool) -> Timing:
    """The timing of a row; ``short`` where latency counts."""
    timer, launched = _entry("timed_by", timed_by), _entry("processes", processes)
    seconds = {name: value * MICROSECOND for name, value in timer.items()}
    return Timing(**seconds, launch=launched.get("launch", 0.0) * MICROSECOND if short else 0.0)


def _entry(column: str, name: str) -> dict[str, float]:
    """What a column's word means; nothing where it is blank."""
    known: dict[str, dict[str, float]] = timers()[column]
    if name and name not in known:
        raise DistsimError(f"{column} {name!r} is not known", did_you_mean(name, known), f"known: {', '.join(known)}")
    return known[name] if name else {}
