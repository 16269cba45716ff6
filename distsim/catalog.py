"""Finds presets by name, path or alias: a path, then ./presets, $DISTSIM_PRESETS, the user's folder, the shipped."""

from __future__ import annotations

import functools
import importlib
import os
import stat
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from distsim.errors import DistsimError
from distsim.preset_files import Written, plain, read_toml, stated_aliases, tables_of, written
from distsim.preset_folders import SHIPPED, Files, files_in, in_folder
from distsim.preset_kinds import BASED, KINDS, SPOKEN, SUFFIXES, kind_of
from distsim.preset_paths import rooted

LONGEST_NAME = 60
"""Letters of a name that is looked for in other words."""
LOOSELY_NAMED = ("clusters", "gpus", "models")
"""Kinds of which hyphens and points may be left out; settings of software are named to the letter."""
PROFILE_HINT = "write a network profile with: distsim calibrate --nccl-tests LOG --output FILE"
"""What helps where there is no such profile of links."""


class _Known(NamedTuple):
    """What was found while nothing changes: places, presets and states of files by kind and name."""

    places: dict[tuple[str, str], tuple[str, Path] | None]
    loaded: dict[Hashable, Any]
    states: dict[tuple[str, str], Written]


_known: ContextVar[_Known | None] = ContextVar("_known", default=None)


def shipped_folder() -> Path:
    """Presets that come with distsim: inside the package when installed, next to it in a checkout."""
    return Path(_presets_beside(__file__))


@functools.lru_cache(maxsize=2)
def _presets_beside(file: str) -> str:
    """The presets of this very code, whose place is looked for once: they are in every search."""
    here = os.path.dirname(file)
    inside = os.path.join(here, "presets")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(here), "presets")


def folders(kind: str) -> list[tuple[str, str]]:
    """(origin, folder) pairs in the order in which they are searched; only folders that exist."""
    return once(("folders of", kind), lambda: _existing(kind))  # type: ignore[no-any-return]


def _existing(kind: str) -> list[tuple[str, str]]:
    homes, ours = once("homes", _homes)
    shipped = os.path.join(ours, kind)
    found = [(where, folder) for where, home in homes if os.path.isdir(folder := os.path.join(home, kind))]
    if not os.path.isdir(shipped):
        return found
    return [*(one for one in found if not os.path.samefile(one[1], shipped)), (SHIPPED, shipped)]


def _homes() -> tuple[list[tuple[str, str]], str]:
    """(origin, folder) of presets of any kind that are not shipped, where there are such; and of the shipped ones."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    extra = [("DISTSIM_PRESETS", one) for one in os.environ.get("DISTSIM_PRESETS", "").split(os.pathsep) if one]
    homes = [("./presets", "presets"), *extra, ("user", os.path.join(config, "distsim", "presets"))]
    ours = _presets_beside(__file__)
    found = [(where, home, place) for where, home in homes if (place := _place_of_folder(home))]
    there = _place_of_folder(ours) if found else None
    return [(where, home) for where, home, place in found if place != there], ours


def _place_of_folder(path: str) -> tuple[int, int] | None:
    """Where on which disk a folder is; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _files(kind: str) -> Files:
    """Every preset of a kind; the first folder that has a name wins."""
    return once(("files of", kind), lambda: files_in(folders(kind), _suffix(kind)))  # type: ignore[no-any-return]


def _suffix(kind: str) -> str:
    return SUFFIXES.get(kind, ".toml")


def names(kind: str) -> list[str]:
    """Names of all presets of a kind, from file names alone; no file is read."""
    kind = kind_of(kind)
    return sorted(os.path.basename(path)[: -len(_suffix(kind))] for _, path in _files(kind).named.values())


def _looks_like_path(name: str) -> bool:
    return "/" in name or os.sep in name or name.lower().endswith((".toml", ".csv"))


def aliases(kind: str) -> dict[str, str]:
    """Every alias with the name of the preset that states it, both plain."""
    found: dict[str, str] = {}
    for name, (_, path) in _files(kind_of(kind)).named.items():
        for alias in stated_aliases(path, ""):
            found.setdefault(plain(alias), name)
    return found


def knows(kind: str, name: str) -> bool:
    """Whether there is a preset, or a file, of that name."""
    return _place(kind_of(kind), name) is not None


@contextmanager
def settled() -> Iterator[None]:
    """While it lasts no preset comes, goes or gets another name, so that each is looked for once: many runs name the
    same few. Within another it is part of that one."""
    known = _known.set(_remembered())
    try:
        yield
    finally:
        _known.reset(known)


def _remembered() -> _Known:
    return _known.get() or _Known({}, {}, {})


def _find(kind: str, name: str) -> tuple[str, Path]:
    """Origin and file of a preset; raises DistsimError where there is none."""
    if found := _place(kind, name):
        return found
    if _looks_like_path(name) or os.path.isfile(name):
        from distsim.interop.meant_presets import no_file

        raise no_file(name, names(kind), _list_hint(kind) if kind != "links" else PROFILE_HINT, _suffix(kind))
    from distsim.interop.meant_presets import meant_hardware, meant_preset, undescribed

    other = undescribed(plain(name)) or meant_hardware(name) if kind in ("gpus", "clusters") else ""
    near = other or meant_preset(kind, plain(name), {**dict.fromkeys(names(kind)), **aliases(kind)})
    raise DistsimError(f"unknown {SPOKEN.get(kind, kind.removesuffix('s'))} {name!r}", near, _list_hint(kind))


def _place(kind: str, name: str) -> tuple[str, Path] | None:
    """Origin and file of a preset; None where there is none."""
    known = _remembered()
    if (kind, name) not in known.places:
        known.places[kind, name] = _looked_for(kind, name)
    return known.places[kind, name]


def _looked_for(kind: str, name: str) -> tuple[str, Path] | None:
    if _looks_like_path(name):
        return ("path", Path(name)) if Path(name).is_file() else None
    wanted = plain(name)
    for where, folder in folders(kind):  # the plain file name needs no listing of the folder
        exact = os.path.join(folder, wanted + _suffix(kind))
        if os.path.isfile(exact):
            return where, Path(exact)
        if where != SHIPPED and (named := in_folder(where, folder, _suffix(kind)).get(wanted)):
            return where, Path(named[1])
    if listed := _files(kind).called(wanted):
        return listed[0], Path(listed[1])
    if len(wanted) > LONGEST_NAME:
        return None
    spelt = _spelt(wanted) if kind == "gpus" else None
    alike = _files(kind).alike(wanted) if not spelt and kind in LOOSELY_NAMED else None
    return (alike[0], Path(alike[1])) if alike else spelt


def _spelt(wanted: str) -> tuple[str, Path] | None:
    """Origin and file of the accelerator that a name means whose words stand otherwise than in any preset; its memory
    and what is in brackets must be this accelerator's."""
    from distsim.specs.gpu_names import BRACKETED, SIZED, near_label, spellings

    if said := BRACKETED.match(wanted):
        found = _place("gpus", said[1])
        return _place("gpus", f"{said[1]}-{said[2]}") or (found if found == _place("gpus", said[2]) else None)
    if other := next(filter(None, (_place("gpus", one) for one in spellings(wanted))), None):
        return other
    sized = SIZED.match(wanted)
    place = _place("gpus", sized[1]) if sized else None
    if sized is None or place is None:
        return None
    stated = _whole("gpus", _with_bases("gpus", place[1])).get("memory", 0)
    return place if near_label(stated, float(sized[2])) else None


def _list_hint(kind: str) -> str:
    return f"list them with: distsim show {kind}"


def path(kind: str, name: str) -> Path:
    """The file of a preset."""
    return _find(kind_of(kind), str(name))[1]


def origin(kind: str, name: str) -> str:
    """Where a preset was found: path, ./presets, DISTSIM_PRESETS, user or shipped."""
    return _find(kind_of(kind), str(name))[0]


def raw(kind: str, name: str) -> dict[str, Any]:
    """A preset's TOML as a dict, unchecked, with what it has of the preset that it is based on."""
    return _whole(kind_of(kind), _with_bases(kind_of(kind), path(kind, name)))


def _with_bases(kind: str, file: Path) -> tuple[str, ...]:
    """A preset's file, that of the preset that it is based on, and so on."""
    if kind not in BASED:
        return (str(file),)
    from distsim.preset_bases import with_bases

    suffix = _suffix(kind)
    return with_bases(
        str(file), lambda base: base if _looks_like_path(base) else plain(base) + suffix, lambda base: path(kind, base)
    )


def _whole(kind: str, files: tuple[str, ...]) -> dict[str, Any]:
    """The TOML of a file over those that it is based on."""
    data = _read(kind, files[-1])
    for file in reversed(files[:-1]):
        from distsim.preset_bases import merged

        data = merged(data, _read(kind, file), file)
    return data


def _read(kind: str, file: str) -> dict[str, Any]:
    return rooted(kind, read_toml(Path(file)), Path(file).parent)


def tables(kind: str, name: str, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The tables of a preset whose names are ``wanted``; the others are not parsed. For long files of many small
    tables."""
    return tables_of(path(kind, name), wanted)


def load(kind: str, name: str) -> Any:
    """A preset as its spec; kinds without a spec class come as a dict."""
    known = _remembered()
    if (kind, name) not in known.loaded:
        sort, file = kind_of(kind), path(kind, name)
        known.loaded[kind, name] = _load(sort, written(_with_bases(sort, file)), str(file))
    return known.loaded[kind, name]


def once(asked: Hashable, make: Callable[[], Any]) -> Any:
    """What follows from presets, worked out once while nothing changes."""
    known = _remembered().loaded
    if asked not in known:
        known[asked] = make()
    return known[asked]


def state(kind: str, name: str = "") -> Written:
    """Files of a preset, or of all of a kind, and when they were written; others where one comes, goes or wins."""
    known = _remembered()
    if (kind, name) not in known.states:
        sort = kind_of(kind)
        known.states[kind, name] = written(_with_bases(sort, path(kind, name))) if name else _files(sort).written
    return known.states[kind, name]


@functools.lru_cache(maxsize=2048)  # all there are, so that who asks for each in turn is not told from files each time
def _load(kind: str, files: Written, shown: str) -> Any:
    data = _whole(kind, tuple(os.path.realpath(file) for file, *_ in files))
    if (place := KINDS[kind]) is None:
        return data
    try:
        read = getattr(importlib.import_module(place[0]), place[1]).read(data, where=shown)
        if kind == "clusters":
            path("gpus", read.gpu)  # raises where there is none
    except DistsimError as error:
        from distsim.interop.meant_presets import of_other_kind

        raise of_other_kind(kind, data, error, shown) from None
    return read


def usual_cluster(gpu: str) -> Any:
    """The node and network in which an accelerator is usually found; an error where its preset names none."""
    accelerator = load("gpus", gpu)
    if accelerator.default_cluster is None:
        raise DistsimError(
            f"{accelerator.name} has no default node and network",
            "name one with --cluster, or set default_cluster in its TOML",
            where=str(path("gpus", gpu)),
        )
    return load("clusters", accelerator.default_cluster)
