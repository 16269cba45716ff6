"""Tables of the presets that ``distsim calibrate`` writes: a user's own may be damaged, and written again meanwhile."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, TypeVarTuple

from distsim import catalog
from distsim.errors import DistsimError, slipped
from distsim.last import while_same
from distsim.preset_files import tables_of

KIND, FITTED, PACE, PEAKS = "timing", "fitted", "pace", "peaks"
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
    """The tables of a fitted preset whose names are ``wanted``; all of a user's own, which is checked. Raises
    DistsimError where it lacks one of ``needed``, or has what nothing reads or nobody means."""
    if catalog.origin(KIND, name) != "shipped":
        return _own(name, needed, catalog.state(KIND, name))
    return _complete(name, catalog.tables(KIND, name, wanted), needed)


def _complete(name: str, found: dict[str, Any], needed: tuple[str, ...]) -> dict[str, Any]:
    if lacking := [one for one in needed if one not in found]:
        raise DistsimError(
            f"lacks the table [{lacking[0]}]",
            "distsim calibrate writes it whole; without the file the shipped one holds",
            where=str(catalog.path(KIND, name)),
        )
    return found


@functools.lru_cache(maxsize=16)
def _own(name: str, needed: tuple[str, ...], written: Hashable) -> dict[str, Any]:
    """All tables of a user's own file, checked once for as long as it is the one that was ``written``."""
    found = _complete(name, catalog.raw(KIND, name), needed)
    check(name, found, str(catalog.path(KIND, name)))
    return found


def check(name: str, tables: Mapping[str, Any], where: str) -> None:
    """Raise for unknown tables and numbers, for numbers that nobody means, and for a table whose name is a slip."""
    from distsim.specs.fitted import FILES

    FILES[name].read(tables, where)
    if name != FITTED:
        return
    _refuse_slips("framework", tables, catalog.names("frameworks"), where)
    _refuse_slips("family", tables, _of_all("frameworks", "family"), where)
    _refuse_slips("architecture", tables, _of_all("gpus", "generation"), where)


def _of_all(kind: str, stated: str) -> Iterator[str]:
    """What each preset of a kind states, but those that are damaged, which is told where somebody needs them."""
    for name in catalog.names(kind):
        with contextlib.suppress(DistsimError):
            yield getattr(catalog.load(kind, name), stated)


def _refuse_slips(table: str, tables: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Names may be of runs that no preset is for, but not one slip of the keys away from one that is known."""
    names = [one for one in tables.get(table, {}) if one not in _shipped_names(table)]
    all_known = set(known) if names else set[str]()
    for name in names:
        near = sorted(one for one in all_known if slipped(name, one))
        if near and name not in all_known:
            raise DistsimError(f"[{table}.{name}] is of nothing known", f"did you mean {', '.join(near)}?", where=where)


def _shipped_names(table: str) -> list[str]:
    """Names of the shipped file's tables of a kind, which need no look at the presets."""
    file = catalog.shipped_folder() / KIND / f"{FITTED}.toml"
    return list(tables_of(file, lambda head: head.startswith(f"{table}.")).get(table, {}))
