"""Tables of the presets that ``distsim calibrate`` writes: a user's own may be damaged, and written again meanwhile."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from distsim import catalog
from distsim.errors import DistsimError

KIND, FITTED = "timing", "fitted"
LEVEL = 0.9
"""Share of measured runs that a range of time or memory holds."""
Answer = TypeVar("Answer")


def kept_while_fitted(most: int, name: str = FITTED) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Remember ``most`` answers of a function of what was fitted, until another file of the ``name`` is written or
    wins."""

    def kept(make: Callable[..., Answer]) -> Callable[..., Answer]:
        @functools.lru_cache(maxsize=most)
        def known(fit: Hashable, *asked: Hashable) -> Answer:
            return make(*asked)

        @functools.wraps(make)
        def found(*asked: Hashable) -> Answer:
            file = catalog.path(KIND, name)
            return known((os.path.realpath(file), os.stat(file).st_mtime_ns), *asked)

        return found

    return kept


def calibrated(name: str, wanted: Callable[[str], bool], *needed: str) -> dict[str, Any]:
    """Those tables of a preset whose names are ``wanted``; an error where it lacks one that it always has."""
    found = catalog.tables(KIND, name, wanted)
    if lacking := [one for one in needed if one not in found]:
        raise DistsimError(
            f"lacks the table [{lacking[0]}]",
            "distsim calibrate writes it whole; without the file the shipped one holds",
            where=str(catalog.path(KIND, name)),
        )
    return found
