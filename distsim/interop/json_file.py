"""Reads a JSON file into a dict; an error names the file and the line."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError
from distsim.plain_files import text_of

NEEDED = "one JSON object {…} is needed"


def read_json(path: Path, repeated: list[str] | None = None) -> dict[str, Any]:
    """The one object that a JSON file holds; keys that are stated twice otherwise go to ``repeated``, in words."""
    try:
        text = text_of(path)
    except UnicodeDecodeError:
        raise DistsimError(f"is not text; {NEEDED}", where=str(path)) from None
    except OSError as error:
        raise DistsimError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if not text.strip():
        raise DistsimError(f"is empty; {NEEDED}", where=str(path))
    try:
        data = json.loads(text, object_pairs_hook=partial(_of_pairs, [] if repeated is None else repeated))
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error.msg} (column {error.colno})"
        raise DistsimError(problem, where=f"{path}:{error.lineno}") from None
    except (RecursionError, ValueError) as error:
        raise DistsimError(f"not usable JSON: {unusable(error)}", where=str(path)) from None
    if not isinstance(data, dict):
        raise DistsimError(f"holds {_kind(data)}; {NEEDED}", where=str(path))
    return data


def unusable(error: RecursionError | ValueError) -> str:
    """What is wrong with JSON that is well formed and that Python does not read."""
    if isinstance(error, RecursionError):
        return "its brackets are nested too deep"
    return f"a number of more than {sys.get_int_max_str_digits():,} digits"


def _of_pairs(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as every reader takes it: the last value of a key."""
    found = dict(pairs)
    for key in found if len(found) < len(pairs) else ():
        values = [value for name, value in pairs if name == key]
        if any(value != values[-1] for value in values):
            last = "" if isinstance(values[-1], (dict, list)) else f" ({json.dumps(values[-1])})"
            repeated.append(f"key {key!r} is stated {len(values)} times: the last one{last} is used")
    return found


def _kind(data: Any) -> str:
    """What a JSON value is, in JSON's own words."""
    if data is None or isinstance(data, bool):
        return {None: "null", True: "true", False: "false"}[data]
    return "a list" if isinstance(data, list) else "a string" if isinstance(data, str) else "a number"
