"""What files and variables keep at one value of a layout where several could be tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distsim.cli.places import TYPED, place_of
from distsim.engine.layouts.searchable import VARIED
from distsim.report import talk
from distsim.specs.flags import flag

ALL_OF = {"zero": "0..3", "recompute": "all", "schedule": "all", "sequence_parallel": "on,off"}
"""All values of a dimension that has not only numbers from 1 on."""


def tell_pinned(origins: Mapping[str, str], dimensions: Iterable[str]) -> None:
    """Note the dimensions that were not typed and are stated all the same, by file or variable, and what frees them;
    how many accelerators there are, and what is no degree, is stated on purpose."""
    free = [one for one in dimensions if one != "gpus" and one not in VARIED]
    stated = {name: origins[name] for name in free if origins.get(name, TYPED) != TYPED}
    for origin in dict.fromkeys(stated.values()):
        names = [name for name, one in stated.items() if one == origin]
        typed = " ".join(f"{flag(name)} {ALL_OF.get(name, '1..')}" for name in names)
        told, what = ("is", "it") if len(names) == 1 else ("are", "them")
        words = ", ".join(name.replace("_", "-") for name in names)
        talk.note(f"{words} {told} fixed by {place_of(origin)}; to search {what}: {typed}")
