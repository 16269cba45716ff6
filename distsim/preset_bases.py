"""Presets that state only what differs from another one: what they have of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError, did_you_mean
from distsim.preset_files import stated
from distsim.specs.base import source_of

BASE, WITHOUT = "based_on", "without"
"""The keys that name another preset, and what of it does not hold, by dotted names."""
OWN = frozenset({"name", "aliases", "scripts", "layouts", WITHOUT})
"""What holds for one preset alone: what it is called, and what its own runs were started with."""


def with_bases(file: str, called: Callable[[str], str], find: Callable[[str], Path]) -> tuple[str, ...]:
    """A preset's file, that of the preset that it is based on, and so on. A base is looked for by what its file is
    ``called`` beside the one that names it, so that no preset of the user's own changes a shipped one; else it is
    what ``find`` finds."""
    files = [file]
    while isinstance(base := stated(files[-1], os.stat(files[-1]).st_mtime_ns, BASE), str) and base:
        beside = os.path.join(os.path.dirname(files[-1]), called(base))
        found = beside if os.path.isfile(beside) else _found(base, find, files[-1])
        if any(os.path.samefile(found, one) for one in files):
            names = " -> ".join(Path(one).stem for one in (*files, found))
            raise DistsimError(f"presets are based on each other: {names}",
                               f"let one of them state all its lines, without {BASE}", where=file)  # fmt: skip
        files.append(found)
    return tuple(files)


def _found(base: str, find: Callable[[str], Path], file: str) -> str:
    try:
        return str(find(base))
    except DistsimError as error:
        raise DistsimError(f"{BASE}: {error.problem}", *error.hints, where=file) from None


def merged(base: dict[str, Any], own: dict[str, Any], where: str = "") -> dict[str, Any]:
    """What a preset states over what it is based on: tables key by key, all else whole. A line that it states has the
    source that it gives to it, whatever the base's was."""
    kept = {name: value for name, value in base.items() if name not in OWN}
    for name in _names(own, where):
        kept = _left_out(kept, name, f"{own[BASE]}", where)
    called = {name: value for name, value in own.items() if name in OWN and name != WITHOUT}
    whole = _over(called | kept, {name: value for name, value in own.items() if name != WITHOUT})
    mine = lines({name: value for name, value in own.items() if name not in (*OWN, BASE, "source")})
    given, all_given = own.get("source", {}), whole.get("source")
    if isinstance(given, dict) and isinstance(all_given, dict):
        told = {line: source_of(given, line) or "" for line in mine}
        whole["source"] = all_given | {line: one for line, one in told.items() if one != source_of(all_given, line)}
    return whole


def lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of all that is no table in a table."""
    found: list[str] = []
    for name, value in table.items():
        found += lines(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
    return found


def _names(own: dict[str, Any], where: str) -> list[str]:
    """What a preset says that it has not of its base."""
    names = own.get(WITHOUT, [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise DistsimError(f"{WITHOUT} takes a list of names", f'for example {WITHOUT} = ["earlier", "kernels.rope"]',
                           where=where)  # fmt: skip
    return names


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for name, value in own.items():
        below = base.get(name)
        found[name] = _over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return found


def _left_out(base: dict[str, Any], name: str, called: str, where: str) -> dict[str, Any]:
    """A preset without what has a dotted name, and without its sources."""
    left = _without(base, name)
    if left is None:
        near = did_you_mean(name, [*base, *lines(base)])
        raise DistsimError(f"{WITHOUT} {name!r}: {called} states nothing of that name", near, where=where)
    if isinstance(source := left.get("source"), dict):
        left["source"] = {key: told for key, told in source.items() if not f"{key}.".startswith(f"{name}.")}
    return left


def _without(table: dict[str, Any], name: str) -> dict[str, Any] | None:
    """A table without what has a dotted name; None where it has nothing of it."""
    if name in table:
        return {key: value for key, value in table.items() if key != name}
    for key, value in table.items():
        if isinstance(value, dict) and name.startswith(f"{key}."):
            left = _without(value, name[len(key) + 1 :])
            if left is not None:
                return {one: inner for one, inner in ({**table, key: left}).items() if one != key or inner}
    return None
