"""Reads presets' TOML: a whole file, some tables of a long one, or the aliases that it states."""

import functools
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError
from distsim.plain_files import text_of

_ALIASES = re.compile(r"^aliases\s*=\s*\[[^\]]*\]", re.MULTILINE)


_BARE = re.compile(r"\s*([\w.-]+)\s*=\s*([^\s\"'\[{#.][^\"'\[\]{}#=]*?)\s*(?:#.*)?$")
"""A line of TOML whose value has no quotes."""


class Written(tuple[tuple[str, int, int, int], ...]):
    """Files by their paths from the root, with the disk and the place on it where they are, and when they were written:
    the state of what was read from them. There may be hundreds, whose hash is asked for with each answer that is
    remembered, and worked out once."""

    @functools.cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


@functools.lru_cache(maxsize=8192)
def plain(name: str) -> str:
    """Lower case with hyphens for blanks and underscores: how names are compared."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def written(files: Iterable[str]) -> Written:
    """Which files these are, and when they were written. A file is told by its place on the disk, which costs a tenth
    of following each folder of its path: a link to another file is another place."""
    told = []
    for file in files:
        try:
            known = os.stat(file)
        except OSError as error:
            raise DistsimError(f"cannot be read: {error.strerror}", where=file) from None
        whole = file if os.path.isabs(file) else os.path.join(os.getcwd(), file)
        told.append((whole, known.st_dev, known.st_ino, known.st_mtime_ns))
    return Written(told)


def toml_of(text: str) -> dict[str, Any]:
    """What a text of TOML says. Raises TOMLDecodeError for all that is none, also where Python tells it otherwise."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        problem = "its brackets are nested too deep"
    except ValueError:  # all that is left: Python reads no more digits than it says here
        problem = f"a number of more than {sys.get_int_max_str_digits():,} digits"
    raise tomllib.TOMLDecodeError(problem)


def unquoted(file: Path, error: tomllib.TOMLDecodeError) -> str:
    """A hint at quotes, where the line at which TOML ends states a word without them; else nothing."""
    line = re.search(r"\(at line (\d+),", str(error))
    stated = _BARE.match(text_of(file).splitlines()[int(line[1]) - 1]) if line else None
    if stated is None or not re.search("[A-Za-z%]", stated[2]):
        return ""
    name, value = stated[1], stated[2]
    if value.lower() in ("true", "false"):
        return f"write {name} = {value.lower()}"
    return f'a text stands in quotes: {name} = "{value}"'


SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".py")
"""Endings of scripts, of which those that name a known tool never come to be read as TOML."""


def no_toml(file: Path, what: str) -> str:
    """What is wrong with a text that is no TOML, where TOML's own complaint is ``what``."""
    return "is a script of no tool that is known here" if file.suffix.lower() in SCRIPTS else f"not valid TOML: {what}"


def read_toml(file: Path) -> dict[str, Any]:
    """The TOML of one file; an error says which line."""
    try:
        data = toml_of(text_of(file))
    except tomllib.TOMLDecodeError as error:
        told = str(error)
        line = re.search(r" ?\(at line (\d+)(, column \d+)\)$", told)
        what, where = (told[: line.start()] + line[2], f"{file}:{line[1]}") if line else (told, str(file))
        raise DistsimError(no_toml(file, what), unquoted(file, error), where=where) from None
    except UnicodeDecodeError:
        raise DistsimError("is not a text file; TOML is expected", where=str(file)) from None
    except OSError as error:
        raise DistsimError(f"cannot be read: {error.strerror}", where=str(file)) from None
    data.setdefault("name", file.stem)
    return data


def tables_of(file: Path, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The tables of a file whose names are ``wanted``; the others are not parsed. All of them where the file is no
    plain list of tables."""
    try:
        first, *parts = re.split(r"(?m)^(?=\[)", text_of(file))
        chosen = [one for one in parts if wanted(one[1 : one.index("]")].replace('"', ""))]
        return toml_of("".join([first, *chosen]))
    except (ValueError, OSError):  # no text, not TOML, or not that simple a file
        return read_toml(file)


def stated_aliases(path: str, wanted: str) -> tuple[str, ...]:
    """Aliases stated in a file that mentions ``wanted``; a broken file has none until it is asked for itself."""
    try:
        line = _alias_line(path, os.stat(path).st_mtime_ns)
        return _aliases_of(line) if line and wanted in plain(line) else ()
    except (DistsimError, OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ()


@functools.lru_cache(maxsize=2048)
def _aliases_of(line: str) -> tuple[str, ...]:
    return tuple(str(one) for one in tomllib.loads(line).get("aliases", ()))


@functools.lru_cache(maxsize=1024)
def stated(path: str, changed_ns: int, key: str) -> Any:
    """What a file states under a key at its top; None where it does not. Only a file that has the word is parsed, or
    one that is no text, of which ``read_toml`` says so."""
    try:
        has = key in text_of(path)
    except UnicodeDecodeError:
        has = True
    return read_toml(Path(path)).get(key) if has else None


@functools.lru_cache(maxsize=2048)
def _alias_line(path: str, changed_ns: int) -> str:
    """The line of a file that states its aliases; empty where none does."""
    match = _ALIASES.search(text_of(path))
    return match[0] if match else ""
