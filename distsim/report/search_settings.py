"""Settings that a search does not try and that make a layout faster than its best, in words."""

from __future__ import annotations

from distsim.engine.advice.search_settings import Quicker
from distsim.report.prose import folded
from distsim.units import duration, gib


def lines(found: Quicker | None) -> list[str]:
    """What to add to the search, and what it saves at least; nothing where nothing does."""
    if found is None:
        return []
    settings = found.settings
    which = f"rank {found.rank}" if found.rank else f"a layout of {gib(settings.peak)}"
    against = "" if found.rank == 1 else " than rank 1"
    told = (
        f"Settings not searched: with {settings.flags} {which} takes {duration(settings.seconds)}, {found.gain:.0%} "
        f"less time per token{against} ({settings.likely:.0%} of measured runs so full would fit); a search with "
        "them may find more"
    )
    return folded([told], indent=4)
