"""Reads a JSON file into a dict; an error names the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError

NEEDED = "one JSON object {…} is needed"


def read_json(path: Path) -> dict[str, Any]:
    """The one object that a JSON file holds."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DistsimError(f"is not text; {NEEDED}", where=str(path)) from None
    except OSError as error:
        raise DistsimError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if not text.strip():
        raise DistsimError(f"is empty; {NEEDED}", where=str(path))
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error.msg} (column {error.colno})"
        raise DistsimError(problem, where=f"{path}:{error.lineno}") from None
    except (RecursionError, ValueError) as error:  # nesting without end, or a number of thousands of digits
        raise DistsimError(f"not usable JSON: {error}", where=str(path)) from None
    if not isinstance(data, dict):
        raise DistsimError(f"holds {_kind(data)}; {NEEDED}", where=str(path))
    return data


def _kind(data: Any) -> str:
    """What a JSON value is, in JSON's own words."""
    if data is None or isinstance(data, bool):
        return {None: "null", True: "true", False: "false"}[data]
    return "a list" if isinstance(data, list) else "a string" if isinstance(data, str) else "a number"
