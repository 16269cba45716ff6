"""What a program states by keywords, checked before anything is computed: whatever was given, what is wrong with it is
told as of a value on the command line."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from distsim.errors import DistsimError, did_you_mean

OF_COMMANDS = ("jobs", "dask", "json", "csv", "all", "diff", "vary", "report", "explain", "compare", "list",
               "svg", "trace", "top", "seed")  # fmt: skip
"""Options that only print, write files or share work, which a program does itself."""
_WRITTEN = "in a program the report's actions have their starts and ends"


def refuse_unknown(
    what: str, options: Iterable[str], known: Iterable[str], called: Mapping[str, str] | None = None
) -> None:
    """Raise for an option that a search, a plan or a pipeline does not have; ``called`` says what some are called."""
    known = set(known)
    for name in options:
        if name not in known:
            raise DistsimError(
                f"{what} has no option {name}", (called or {}).get(name) or _instead(name) or did_you_mean(name, known)
            )


def _instead(name: str) -> str:
    """What a program does instead of stating an option that only the command line has; empty for others."""
    itself = "in a program everything runs in the calling process"
    each = "in a program call it once for each"
    does = {"vary": f"{each} value", "compare": f"{each} schedule", "svg": _WRITTEN, "trace": _WRITTEN,
            "list": "distsim pipeline --list", "top": "in a program plan.options has all",
            "seed": "in a program plan.campaigns(seed) takes it"}.get(name, itself)  # fmt: skip
    return f"only the command line has it: {does}" if name in OF_COMMANDS else ""


def with_first(what: str, name: str, given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Options with the one that may stand before them without its name."""
    if len(given) > 1:
        told = ", ".join(repr(one) for one in given[1:])
        raise DistsimError(f"{what} takes the {name} alone without its name, not {told}", "name the others: tp=8")
    if name in options:
        raise DistsimError(f"{name} is given twice: {given[0]!r} and {options[name]!r}", "keep one of them")
    return {name: given[0], **options}


def word(name: str, value: Any) -> str:
    """A text, or a path as one; nothing empty."""
    if not isinstance(value, (str, os.PathLike)):
        raise DistsimError(f"{name} {value!r} is not a string")
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip():
        raise DistsimError(f"{name} {text!r} is empty", "name one, or leave it out")
    return text


def integer(value: Any) -> int | None:
    """A whole number, whatever kind of number it is of; None where it is none."""
    if is_switch(value):
        return None
    try:
        return int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except TypeError:
        return None


def whole(name: str, value: Any, least: int | None = 1) -> int:
    """A whole number; without ``least`` others tell its range."""
    count = integer(value)
    if count is None:
        raise DistsimError(f"{name} {value!r} is not a whole number", "" if least is None else f"give {least} or more")
    if least is not None and count < least:
        raise DistsimError(f"{name} {count} is out of range", f"give {least} or more")
    return count


def number(name: str, value: Any) -> float:
    """A number; others tell its range."""
    if is_switch(value) or not isinstance(value, Real):
        raise DistsimError(f"{name} {value!r} is not a number")
    return value if isinstance(value, (int, float)) else float(value)


def is_switch(value: Any) -> bool:
    """Whether it is true or false, of Python or of numpy, which need not be loaded."""
    return type(value).__name__ in ("bool", "bool_")


def switch(name: str, value: Any) -> bool:
    """True or false."""
    if not is_switch(value):
        raise DistsimError(f"{name} {value!r} is not true or false")
    return bool(value)


def as_text(name: str, value: Any) -> str:
    """An option as the command line has it: several values with commas, switches as on and off, numbers as numbers."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if is_switch(value):
        return "on" if value else "off"
    if isinstance(value, Real):
        return str(int(float(value)) if float(value).is_integer() else value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, dict)):
        return ",".join(as_text(name, one) for one in value)
    raise DistsimError(f"{name} {value!r} is not an option value", "give a number, a string or a list of these")
