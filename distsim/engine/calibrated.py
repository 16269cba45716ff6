"""Tables of the presets that ``distsim calibrate`` writes: a user's own may be damaged, and written again meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from distsim import catalog
from distsim.errors import DistsimError
from distsim.last import while_same

KIND, FITTED = "timing", "fitted"
LEVEL, HALF = 0.9, 0.5
"""Shares of measured runs that a range of time or memory holds."""
Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


def kept_while_fitted(
    most: int, name: str = FITTED
) -> Callable[[Callable[[*Arguments], Answer]], Callable[[*Arguments], Answer]]:
    """Remember ``most`` answers of a function of what was fitted, until another file of the ``name`` is written or
    wins."""
    return while_same(lambda: catalog.state(KIND, name), most)


def calibrated(name: str, wanted: Callable[[str], bool], *needed: str) -> dict[str, Any]:
    """The tables of a fitted preset whose names are ``wanted``. Raises DistsimError where it lacks one of
    ``needed``."""
    found = catalog.tables(KIND, name, wanted)
    if lacking := [one for one in needed if one not in found]:
        raise DistsimError(
            f"lacks the table [{lacking[0]}]",
            "distsim calibrate writes it whole; without the file the shipped one holds",
            where=str(catalog.path(KIND, name)),
        )
    return found
