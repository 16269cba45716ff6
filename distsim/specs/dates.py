"""Dates as sources give them: a day, a month, a quarter, a year or a span of years; and how old that makes a figure."""

from __future__ import annotations

import calendar
import datetime
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from distsim.units import DAY, MONTH

_QUARTER = re.compile(r"^(\d{4})-Q([1-4])$")
_MONTH = re.compile(r"^(\d{4})-(\d{2})$")
_YEARS = re.compile(r"^(\d{4})(?:-(\d{4}))?$")
EXAMPLES = "2026-09-20, 2026-09, 2026-Q3, 2026 or 2025-2026"
FUTURE = "dated in the future"


def span(text: str) -> tuple[datetime.date, datetime.date]:
    """First and last day that a stated date can mean; ValueError when it is no date."""
    if match := _QUARTER.match(text):
        year, quarter = int(match[1]), int(match[2])
        return datetime.date(year, 3 * quarter - 2, 1), _end_of_month(year, 3 * quarter)
    if (match := _MONTH.match(text)) and 1 <= int(match[2]) <= 12:
        year, month = int(match[1]), int(match[2])
        return datetime.date(year, month, 1), _end_of_month(year, month)
    if (match := _YEARS.match(text)) and 1 <= int(match[1]) <= int(match[2] or match[1]):
        return datetime.date(int(match[1]), 1, 1), datetime.date(int(match[2] or match[1]), 12, 31)
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"date {text!r} is not a date; write e.g. {EXAMPLES}") from None
    return day, day


def _end_of_month(year: int, month: int) -> datetime.date:
    return datetime.date(year, month, calendar.monthrange(year, month)[1])


def _stated(value: Any) -> str:
    """The date as text, once it is known to be one; TOML's own dates and whole years are taken too."""
    text = value.isoformat() if isinstance(value, datetime.date) else str(value).strip()
    span(text)
    return text


StatedDate = Annotated[str, BeforeValidator(_stated)]


def age(stated: str, today: datetime.date) -> str:
    """How old a figure is in words; one dated by a month or a year is at most as old as its first day."""
    first, last = span(stated)
    if first > today:
        return FUTURE
    days = (today - first).days
    words = f"{days} days" if days < 60 else f"{days * DAY / MONTH:.0f} months"
    return words if first == last else f"up to {words}"


def dated(stated: str, today: datetime.date) -> str:
    """A date with its age: ``2026-09, up to 2 months old``."""
    old = age(stated, today)
    return f"{stated}, {old if old == FUTURE else f'{old} old'}"
