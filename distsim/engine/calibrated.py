"""Tables of the presets that ``distsim calibrate`` writes, of which a user's own may be damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsim import catalog
from distsim.errors import DistsimError

KIND = "timing"


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
