"""Leaves the options that a command line does not mention out of its parser: each costs time to build (start-up)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args

from distsim.cli.signatures import with_signature


def narrowed(function: Callable[..., None], arguments: list[str]) -> Callable[..., None]:
    """``function`` with the options that ``arguments`` mention, and all it takes by place; the others get their
    defaults. The function itself where an argument is none of its flags: help, mistakes and hints need all of them.
    """
    taken = inspect.signature(function, eval_str=True).parameters.values()
    flags = {name: set(_flags(name, info)) for name, info in ((one.name, _option(one)) for one in taken) if info}
    named = {word.split("=")[0] for word in arguments if word.startswith("-")}
    if not arguments or not named <= {flag for known in flags.values() for flag in known}:
        return function
    defaults = {one.name: one.default for one in taken if one.name in flags}
    kept = [one for one in taken if one.name not in flags or flags[one.name] & named]

    def command(**values: Any) -> None:
        function(**{**defaults, **values})

    return with_signature(command, [one.replace(kind=one.KEYWORD_ONLY) for one in kept], function)


def flags_of(function: Callable[..., None], switches: bool = True) -> set[str]:
    """All flags that a command takes, or those that have a value."""
    taken = inspect.signature(function, eval_str=True).parameters.values()
    asked = ((one, info) for one in taken if (info := _option(one)) and (switches or not _is_switch(one)))
    return {flag for one, info in asked for flag in _flags(one.name, info)}


def _is_switch(parameter: inspect.Parameter) -> bool:
    """Whether an option takes no value."""
    kind = get_args(parameter.annotation)[0]
    return bool in (kind, *get_args(kind))


def _option(parameter: inspect.Parameter) -> Any:
    """The typer option behind a parameter that has a default; None for the rest."""
    from typer.models import OptionInfo

    if parameter.default is parameter.empty:
        return None
    return next((one for one in get_args(parameter.annotation)[1:] if isinstance(one, OptionInfo)), None)


def _flags(name: str, info: Any) -> Iterator[str]:
    """The flags of an option as typer makes them: those declared, else its name and, for a switch, the opposite."""
    plain = name.strip("_").replace("_", "-")
    for flag in declared(info) or (f"--{plain}", f"--no-{plain}"):
        yield from flag.split("/")


def declared(info: Any) -> tuple[str, ...]:
    """The flags that an option states; within Annotated the first of them stands where a default would."""
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    return (*first, *(info.param_decls or ()))
