"""Text a person would write <-> SI numbers: ``"80 GiB"`` <-> 85899345920. The only home of 2**30, 1e9 and 3600."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from distsim.errors import DID_YOU_MEAN, DistsimError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86400.0, 365 * 86400.0
YEAR_MONTHS = 12
MONTH = YEAR / YEAR_MONTHS
"""As it is billed: 730 hours."""
STATED_MONTH = 30 * DAY
"""What somebody means who types ``3 months``."""
MILLISECOND, MICROSECOND = 1e-3, 1e-6
GIGA, TERA = 1e9, 1e12
WATTS_PER_KILOWATT = KWH_PER_MWH = KILOGRAMS_PER_TONNE = 1000.0
BITS_PER_BYTE, FP32_BYTES, HALF_BYTES, FP8_BYTES = 8, 4, 2, 1
INDEX_BYTES, MASK_BYTES = 8, 1
"""Token ids, positions and experts are int64; a dropout mask is one byte per element."""

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": TIB, "Pi": 2**50}
_PREFIXES: dict[str, float] = {**_DECIMAL, **_BINARY}
_COUNTS: dict[str, float] = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "G": 1e9}
_TIMES = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
    "min": MINUTE, "minute": MINUTE, "minutes": MINUTE, "h": HOUR, "hour": HOUR, "hours": HOUR,
    "d": DAY, "day": DAY, "days": DAY, "w": 7 * DAY, "week": 7 * DAY, "weeks": 7 * DAY,
    "month": STATED_MONTH, "months": STATED_MONTH, "y": YEAR, "year": YEAR, "years": YEAR,
}  # fmt: skip
_NUMBER = re.compile(r"^\s*([+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")
_EATEN = re.compile(r"[0,]*[kKMBT]|0[0,]+")
"""What a shell leaves of ``$5M``, ``$500k`` or ``$100,000``."""
_EXAMPLES = {
    "B": "80 GB, 40GiB, 512 MiB",
    "B/s": "2.0 TB/s, 400Gb/s, 900 GB/s",
    "FLOP/s": "312 TFLOP/s, 1.9 PFLOP/s",
    "s": "5 us, 40 s, 3 h, 30d",
    "tokens": "2T tokens, 300B, 1.5e12",
    "W": "700 W, 10.2 kW",
    "Hz": "1830 MHz, 1.98 GHz",
    "USD": "5M, 250k USD, 12.50",
    "1": "0.85, 85%",
}


def _unit_factor(suffix: str, dimension: str) -> float | None:
    """Factor of a suffix such as ``Gb/s`` for the dimension ``B/s``; None when it is not of that dimension."""
    if dimension == "s":
        return _TIMES.get(suffix)
    if dimension == "1":
        return {"": 1.0, "%": 0.01, "x": 1.0}.get(suffix)
    if dimension == "tokens":
        return _COUNTS.get(re.sub(r"\s*(tokens?|tok)$", "", suffix).strip())
    if dimension == "USD":
        return _COUNTS.get(re.sub(r"\s*(USD|dollars?)$", "", suffix).strip())
    pattern = {
        "B": r"^([kKMGTPE]i?|)(B|bytes?|b|bit)$",
        "B/s": r"^([kKMGTPE]i?|)(B|bytes?|b|bit)(?:/s|ps)$",
        "FLOP/s": r"^([kKMGTPE]|)(FLOPS?|FLOPs|OPS?)(?:/s|)$",
        "W": r"^([kKMG]|)(W)$",
        "Hz": r"^([kKMG]|)(Hz)$",
    }[dimension]
    match = re.match(pattern, suffix)
    if not match:
        return None
    return _PREFIXES[match[1]] / (8 if match[2] in ("b", "bit") else 1)


_COUNT_WORDS = {"thousand": "k", "million": "M", "mm": "M", "mn": "M", "billion": "B", "bn": "B", "trillion": "T",
                "tn": "T"}  # fmt: skip
_WORDS = {
    "s": {"m": "min month", "mo": "month", "mins": "min", "hr": "h", "hrs": "h", "yr": "y", "yrs": "y"},
    "tokens": _COUNT_WORDS,
    "USD": _COUNT_WORDS,
    "B": {"k": "kB KiB", "m": "MB MiB", "g": "GB GiB", "t": "TB TiB"},
}
"""What people write that is no unit here, in small letters -> what it may be."""


def _near_units(number: str, suffix: str, dimension: str) -> str:
    """A hint at units that a suffix is but for capitals, or that it may be short or long for; else nothing."""
    low = suffix.lower()
    spelt = f"{low} {low.upper()} {low[:1].upper()}{low[1:-1]}{low[-1:].upper()}"
    meant = _WORDS.get(dimension, {}).get(low, spelt) if suffix else ""
    known = dict.fromkeys(unit for unit in meant.split() if _unit_factor(unit, dimension) is not None)
    return f"{DID_YOU_MEAN} {' or '.join(f'{number}{unit}' for unit in known)}?" if known else ""


_BITS = re.compile(r"^(.*?)\s*([kKMGTPE]i?|)(?:bit|b)(/s|ps|)$")


def in_bits(text: Any) -> str:
    """What a size or a rate in bits would be in bytes, as it is written: ``80 GiB`` for ``80 Gib``; else empty."""
    match = _NUMBER.match(text) if isinstance(text, str) else None
    bits = _BITS.match(match[2]) if match else None
    return f"{match[1]} {bits[2]}B{bits[3]}" if match and bits else ""


def in_other_units(text: Any, units: Sequence[str]) -> list[str]:
    """The number of a text with its own unit in each of some others: ``700 W`` of ``700 kW``."""
    match = _NUMBER.match(str(text))
    return [f"{match[1]} {unit}" for unit in units if unit != match[2]] if match else []


LARGEST_NUMBER = 1e300
"""Beyond every quantity; whole numbers may be longer than floats."""


def parse_time(text: Any, where: str, units: tuple[str, ...] = ("d", "h", "min"), usual: float = 0) -> float:
    """Seconds of a time with its unit. A text that is a bare number, which might be of days or hours, is refused; a
    program's number is of seconds, and refused too where it is less than is ``usual``."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and 0 < text < usual:
        last, *first = (f'"{text:g}{unit}"' for unit in ("s", *units))
        raise DistsimError(
            f"{where} {text:g} is {text:g} seconds, as all bare numbers are", f"write {', '.join(first)}, or {last}"
        )
    if isinstance(text, str) and text.strip().lstrip("+-").replace(".", "", 1).isdigit():
        *first, last = (f"{text if float(text) else 1}{unit}" for unit in units)
        raise DistsimError(f"{where} {text} has no unit", f"write e.g. {', '.join(first)} or {last}")
    try:
        return parse(text, "s", where)
    except DistsimError as error:
        examples = ", ".join(f"{number}{unit}" for number, unit in zip((30, 12, 90), units, strict=False))
        raise DistsimError(
            error.problem.replace("a quantity in s", "a time"),
            error.near,
            f"write a number and a unit, e.g. {examples}",
        ) from None


def parse(value: Any, dimension: str, what: str = "value") -> float:
    """SI number of a text such as ``80GB``; a bare number is taken as SI. ``dimension`` is one of B, B/s, FLOP/s, s,
    tokens, W, Hz, USD or 1 (a ratio). Raises DistsimError for text that does not say a number of that dimension."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number, factor = float(value) if abs(value) < LARGEST_NUMBER else float("inf"), 1.0
    else:
        text = str(value).lstrip("$") if dimension == "USD" else str(value)
        match = _NUMBER.match(text)
        found = _unit_factor(match[2], dimension) if match else None
        if match and match[2] == "" and found is None:
            found = 1.0
        eaten = dimension == "USD" and _EATEN.fullmatch(text) is not None
        if not match or found is None or eaten:
            near = _near_units(match[1], match[2], dimension) if match else ""
            near = "a shell takes $5 for a variable: write 5M, or '$5M' in quotes" if eaten else near
            raise DistsimError(
                f"{what} {value!r} is not a quantity in {dimension}", near, f"write e.g. {_EXAMPLES[dimension]}"
            )
        number, factor = float(match[1].replace(",", "").replace("_", "")), found
    result = number * factor
    if result != result or result in (float("inf"), float("-inf")):
        raise DistsimError(f"{what} {value!r} is not a finite number", f"write e.g. {_EXAMPLES[dimension]}")
    return result


def parse_share(value: Any, option: str, what: str, such_as: str = "0.05 or 5%") -> float:
    """``2%``, ``"0.02"`` or 0.02; nothing is 0. ``what`` it is a share of, in words."""
    text = "0" if value is None else str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = float("nan")
    if not 0 <= share < 1:
        problem, hint = f"--{option} {value} is not a share {what}", f"give 0 to 0.99, e.g. {such_as}"
        raise DistsimError(problem, per_cent_meant(text), hint)
    return share


def per_cent_meant(text: str) -> str:
    """A hint where a bare number of 1 to 100 is given as a share, which it is only per cent; else nothing."""
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        return ""
    return f"{text} is {100 * number:g}%: {DID_YOU_MEAN} {text}%?" if 1 <= number <= 100 else ""


def gib(size_bytes: float, digits: int = 2) -> str:
    """Bytes as ``12.55 GiB``; small sizes as MiB, KiB or B so that nothing prints as zero."""
    size = abs(size_bytes)
    if size >= 0.095 * GIB or size == 0:
        return f"{size_bytes / GIB:,.{digits}f} GiB"
    if size >= 0.95 * MIB:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes / KIB:.1f} KiB" if size >= KIB else f"{size_bytes:.0f} B"


def decimal_bytes(size_bytes: float, suffix: str = "B") -> str:
    """Bytes in powers of a thousand: ``1.07 GB``, ``13.0 GB``. Rates, which are mostly stated, as short as they may be:
    ``25 GB/s``."""
    digits = _three_digits if suffix == "B" else _short
    for prefix in ("T", "G", "M", "k"):
        if abs(size_bytes) >= 0.9995 * _DECIMAL[prefix]:
            return f"{digits(size_bytes / _DECIMAL[prefix])} {prefix}{suffix}"
    if suffix == "B" and 0 < size_bytes < 1:  # a mean over ranks
        return "< 1 B"
    return f"{size_bytes:.0f} B" if suffix == "B" else f"{size_bytes:.3g} {suffix}"


def _three_digits(value: float) -> str:
    """Three digits, or all of those before the point: ``1.07``, ``13.0``, ``1,265``."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def stated(text: str) -> str:
    """A size or time that a user stated, without zeros that he did not write: ``40 GB``, ``12 s``."""
    number, blank, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{blank}{unit}"


LEAST_SECONDS = 0.5e-9
"""What is left of a sum of rounded floats, not a time."""


_SHOWN = (
    (0.9995e-3, 1e-6, "us"),
    (0.9995, 1e-3, "ms"),
    (119.5, 1, "s"),
    (2 * HOUR, MINUTE, "min"),
    (2 * DAY, HOUR, "h"),
)
"""Times below a limit -> the unit that a person would choose, in seconds, and its name."""


def duration(seconds: float) -> str:
    """Seconds in the unit a person would choose: ``12.3 us``, ``1.42 s``, ``54.0 days``."""
    return duration_like(seconds, seconds)


def duration_like(seconds: float, other: float) -> str:
    """Seconds in the unit a person would choose for an ``other`` time, to be read beside it: ``264 s`` beside
    ``99.0 s``."""
    size = abs(seconds)
    if not size:
        return "0 s"
    if size < LEAST_SECONDS:
        return "<0.001 us"
    for limit, unit, name in _SHOWN:
        if abs(other) < limit:
            number = seconds / unit
            return f"{_three_digits(number) if unit <= 1 else f'{number:,.1f}'} {name}"
    return f"{seconds / DAY:,.{1 if size < 99.95 * DAY else 0}f} days"


LEAST_TOLD = 0.01
"""Dollars below which an amount is told as less than that, not as nothing."""


def dollars(amount: float) -> str:
    """An amount as a person says it: ``$1.49M``, ``$830k``, ``$12.50``, ``-$4,506``."""
    if amount < 0:
        return f"-{dollars(-amount)}"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if amount >= size:
            return f"${amount / (1e3 if unit == 'k' else size):,.{0 if unit == 'k' else 2}f}{unit}"
    if 0 < amount < LEAST_TOLD:
        return f"under ${LEAST_TOLD:g}"
    return f"${amount:,.2f}" if amount < 100 else f"${amount:,.0f}"


def days_words(days: float) -> str:
    """A stated length of time: ``1 day``, ``2.5 days``; below a day in hours or less."""
    return duration(days * DAY) if days < 1 else f"{days:g} day{'' if days == 1 else 's'}"


def count(number: float) -> str:
    """A plain count in the field's short form: ``6.74B``, ``1.2T``, ``512``."""
    for prefix, unit in (("T", "T"), ("G", "B"), ("M", "M")):
        if abs(number) >= 0.9995 * _DECIMAL[prefix]:
            many = abs(number) >= 999.5 * _DECIMAL[prefix]
            return f"{number / _DECIMAL[prefix]:{',.0f' if many else '.3g'}}{unit}"
    return f"{number:,.0f}"


def rounded(number: float) -> str:
    """A count that is known to three digits only: ``700,000``, ``1.25M``."""
    return count(float(f"{number:.3g}"))


def least_to_most(numbers: Sequence[int]) -> str:
    """The least and the most of some whole numbers: ``32 to 2,048``; ``64`` where all are that."""
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
