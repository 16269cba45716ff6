"""Which files hold the presets of a kind, by name and alias, and when they were written."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence

from distsim.preset_files import Written, plain, stated_aliases, written

SHIPPED = "shipped"
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
Listing = dict[str, tuple[str, str]]
"""Origin and file by plain name or alias."""


class Files:
    """The presets of a kind, where the first folder that has a name wins."""

    def __init__(self, named: Listing) -> None:
        self.named = named
        self._asked = False

    def called(self, wanted: str) -> tuple[str, str] | None:
        """The one of this plain name or alias; aliases of all are read only where one is looked for more than once."""
        if self._asked:
            return self._every.get(wanted)
        self._asked = True
        return self._with_aliases(wanted).get(wanted)

    def alike(self, wanted: str) -> tuple[str, str] | None:
        """The only one of whose plain names or aliases this one leaves out hyphens beside letters, or in which it has
        them for points; None where several are meant."""
        return self._loose.get(joined(wanted))

    @functools.cached_property
    def _loose(self) -> dict[str, tuple[str, str] | None]:
        found: dict[str, tuple[str, str] | None] = {}
        for name, place in self._every.items():
            for like in {joined(name), joined(_POINT.sub("-", name))}:
                found[like] = place if found.setdefault(like, place) == place else None
        return found

    @functools.cached_property
    def written(self) -> Written:
        """The files and when they were written."""
        return written(file for _, file in self.named.values())

    @functools.cached_property
    def _every(self) -> Listing:
        return self._with_aliases("")

    def _with_aliases(self, wanted: str) -> Listing:
        found = dict(self.named)
        for place in self.named.values():
            for alias in stated_aliases(place[1], wanted):
                found.setdefault(plain(alias), place)
        return found


def joined(name: str) -> str:
    """A plain name without the hyphens that people leave out, those beside letters: what stands between two digits
    stays, since it tells 1.5b from 15b.

    >>> joined("llama-3-8b") == joined("llama3-8b"), joined("gpt2-1.5b") == joined("gpt2-15b")
    (True, False)
    """
    return re.sub(r"(?<=[a-z])-|-(?=[a-z])", "", name)


def files_in(folders: Sequence[tuple[str, str]], suffix: str) -> Files:
    """Those of some folders with their origins, in the order in which they are searched. Shipped presets alone are
    listed once as long as no file comes to their folder or leaves it: like the code, they change with another release,
    so a process may go on with what it has read of them. A user's are looked at anew."""
    if len(folders) == 1 and folders[0][0] == SHIPPED:
        folder = folders[0][1]
        return _shipped(folder, suffix, os.stat(folder).st_mtime_ns)
    found: Listing = {}
    for where, folder in folders:
        for name, place in in_folder(where, folder, suffix).items():
            found.setdefault(name, place)
    return Files(found)


@functools.lru_cache(maxsize=32)
def _shipped(folder: str, suffix: str, changed_ns: int) -> Files:
    return Files(in_folder(SHIPPED, folder, suffix))


def in_folder(where: str, folder: str, suffix: str) -> Listing:
    """The presets of one folder by plain name, with their paths as text: there are many, and one is wanted."""
    before = os.path.join(folder, "")
    found: Listing = {}
    for entry in sorted(os.listdir(folder)):
        if entry.endswith(suffix) and not entry.startswith("."):
            found.setdefault(plain(entry[: -len(suffix)]), (where, before + entry))
    return found
