"""Marks in the numbers of a table as spreadsheets write them: commas before decimals, points or blanks between
thousands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distsim.interop.runs.cell_kinds import COUNTS, MEASURED

_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_SPACED = re.compile(r"-?\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?:\.\d+)?")
"""Thousands apart, as in French and Swiss tables."""
_POINTS = re.compile(r"-?\d{1,3}(\.\d{3})+(,\d+)?")
"""Thousands where commas are decimal."""
_LED = re.compile(r"([~≈]\s*)?(\d[\d.,]*\d)(\s*(?:[a-zA-Z(\[%/±]|\+/?-).*)?")
"""A number between a mark that it is rounded and its unit or remark."""
_POINT = re.compile(r"-?\d+\.(\d{1,2}|\d{4,})")
"""A decimal point that separates no thousands."""


class Marks(NamedTuple):
    """What marks in a table's numbers mean: else commas are between thousands, and points before decimals."""

    decimal_commas: bool
    thousand_points: bool


def marks_of(rows: Sequence[Mapping[str, str]], delimiter: str) -> Marks:
    """A comma stands before decimals where a number tells it, as 1,42 does, which is no thousand, or 5.762,3; and
    between semicolons, which spreadsheets write where it does, unless points do. A point stands between thousands only
    beside such commas."""
    if delimiter == ",":
        return Marks(False, False)
    texts = [row.get(name, "").strip() for row in rows for name in (*MEASURED, *COUNTS)]
    told = any(
        (_DECIMAL_COMMA.fullmatch(text) and not _THOUSANDS.fullmatch(text)) or (_POINTS.fullmatch(text) and "," in text)
        for text in texts
    )
    points = any(_POINT.fullmatch(text) for text in texts)
    return Marks(told or (delimiter == ";" and not points), told and not points)


def plain_numbers(cells: dict[str, str], marks: Marks) -> dict[str, str]:
    """Cells whose numbers are written as spreadsheets do: 1,42 or 5.762 where commas are decimal, 6,900."""
    for name in (*MEASURED, *COUNTS):
        text = cells.get(name, "").strip()
        if not text or (text.isascii() and text.isdigit()):  # nearly all cells
            continue
        if (led := _LED.fullmatch(text)) and led[2] != text:
            cells[name] = f"{led[1] or ''}{plain_numbers({name: led[2]}, marks)[name]}{led[3] or ''}"
        elif marks.thousand_points and _POINTS.fullmatch(text):
            cells[name] = text.replace(".", "").replace(",", ".")
        elif marks.decimal_commas and _DECIMAL_COMMA.fullmatch(text):
            cells[name] = text.replace(",", ".")
        elif _SPACED.fullmatch(text):
            cells[name] = re.sub(r"[^\d.-]", "", text)
        elif not marks.decimal_commas and _THOUSANDS.fullmatch(text):
            cells[name] = text.replace(",", "")
    return cells
