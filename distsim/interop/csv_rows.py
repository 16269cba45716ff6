"""A CSV table as one mapping per row: numbers where a column holds nothing else, None for blank cells."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from distsim.errors import DistsimError
from distsim.plain_files import text_of

_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,2})?")
Cell = int | float | str | None


def rows(path: Path) -> list[dict[str, Cell]]:
    """The rows of a file by its first line. A column of which one cell is text is text throughout."""
    try:
        reader = csv.DictReader(io.StringIO(text_of(path, newline=""), newline=""), restkey="", restval="")
        names = [name for name in reader.fieldnames or () if name]
        found = list(reader)
    except UnicodeDecodeError:
        raise DistsimError("not a CSV table in UTF-8", "save it as CSV (UTF-8)", where=str(path)) from None
    except (OSError, csv.Error) as error:
        raise DistsimError(f"not a CSV table: {error}", where=str(path)) from None
    numeric = {name for name in names if all(_NUMBER.fullmatch(row[name]) for row in found if row[name])}
    return [{name: _cell(row[name], name in numeric) for name in names} for row in found]


def _cell(text: str, numeric: bool) -> Cell:
    if not text:
        return None
    if not numeric:
        return text
    return int(text) if _WHOLE.fullmatch(text) else float(text)
