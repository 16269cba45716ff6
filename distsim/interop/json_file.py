"""Reads a JSON file into a dict; an error names the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distsim.errors import DistsimError


def read_json(path: Path) -> dict[str, Any]:
    """The one object that a JSON file holds."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DistsimError(f"cannot be read as text: {error}", where=str(path)) from None
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error.msg} (column {error.colno})"
        raise DistsimError(problem, where=f"{path}:{error.lineno}") from None
    except (RecursionError, ValueError) as error:  # nesting without end, or a number of thousands of digits
        raise DistsimError(f"not usable JSON: {error}", where=str(path)) from None
    if not isinstance(data, dict):
        raise DistsimError(f"holds a {type(data).__name__} where one JSON object {{…}} is needed", where=str(path))
    return data
