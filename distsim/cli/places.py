"""Names the file or variable behind a wrong value: what stands far from the command line is hard to find."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from distsim.errors import DistsimError

TYPED = "command line"
"""The origin of what needs no such name."""
KINDS = ("job file ", "environment ", "project ", "user config ")
"""Words of an origin before the file or variable itself."""
_Stated = dict[str, tuple[Any, str]]
_stated: ContextVar[_Stated | None] = ContextVar("_stated", default=None)


def place_of(origin: str) -> str:
    """The file or variable of an origin."""
    kind = next((one for one in KINDS if origin.startswith(one)), "")
    return origin.removeprefix(kind)


def remember(options: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """Keep in mind which options of the running command were not typed."""
    stated = _stated.get()
    if stated is not None:
        stated.update({name: (options[name], place_of(one)) for name, one in origins.items() if one != TYPED})


@contextmanager
def named() -> Iterator[None]:
    """While it lasts, an error about a value that was not typed tells where that stands."""
    token = _stated.set({})
    try:
        yield
    except DistsimError as error:
        raise _with_place(error, _stated.get() or {}) from None
    finally:
        _stated.reset(token)


def _with_place(error: DistsimError, stated: _Stated) -> DistsimError:
    """The error with the place of the option that it begins with or whose text it quotes; else with a line for each
    option, number or word in it that was not typed."""
    if error.where:
        return error
    first = re.split(r"[\s:]", error.problem, maxsplit=1)[0]
    quoted = [name for name, (value, _) in stated.items() if isinstance(value, str) and repr(value) in error.problem]
    if name := first if first in stated else next(iter(quoted), ""):
        place = stated[name][1]
        both = error.problem.startswith("no file ") and os.path.dirname(place)
        looked = f"looked in that file's folder and in {os.getcwd()}" if both else ""
        return DistsimError(error.problem, looked, *error.hints, where=place)
    plain = error.problem.replace(",", "")
    asked = " ".join([plain, *re.findall(r"leave --[\w-]+", " ".join(error.hints))])
    flags = {flag.removeprefix("no-").replace("-", "_") for flag in re.findall(r"--([a-z][\w-]*)", asked)}
    lines = [
        f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)} is set in {place}"
        for name, (value, place) in stated.items()
        if name in flags or _quotes(plain, value)
    ]
    return DistsimError(error.problem, *error.hints, *lines)


def _quotes(problem: str, value: Any) -> bool:
    """Whether a problem has the text of a value, and not by chance: many have a 1 in them."""
    if isinstance(value, (bool, list)) or value == 1:
        return False
    return re.search(rf"(?<![\w.-]){re.escape(str(value))}(?![\w.-])", problem) is not None
