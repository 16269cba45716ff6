"""A command whose options are made, not written out: typer reads them from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer


def option(flag: str, text: str) -> Any:
    """An option whose help says what holds where it is not given."""
    return typer.Option(flag, help=text, show_default=False)


def with_signature(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter], function: Callable[..., None]
) -> Callable[..., None]:
    """``command``, which takes any keywords, with these parameters and with the name and help of ``function``."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command


def splitting(
    function: Callable[..., None], name: str, others: Callable[[Sequence[inspect.Parameter]], list[inspect.Parameter]]
) -> Callable[..., None]:
    """A command of ``function``, which has options of its own and takes all further ones as its argument ``name``;
    ``others`` puts those around its own."""
    taken = inspect.signature(function, eval_str=True).parameters
    mine = [one.replace(kind=one.KEYWORD_ONLY) for one in taken.values() if one.name != name]
    names = {one.name for one in mine}

    def command(**values: Any) -> None:
        own = {key: value for key, value in values.items() if key in names}
        function({key: value for key, value in values.items() if key not in names}, **own)

    return with_signature(command, others(mine), function)


def gathering(name: str, options: Sequence[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function a command with ``options`` where it has the argument ``name``, as which it is given them."""

    def made(function: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for one in inspect.signature(function, eval_str=True).parameters.values():
            parameters += options if one.name == name else [one.replace(kind=one.KEYWORD_ONLY)]

        def command(**values: Any) -> None:
            together = {one.name: values.pop(one.name) for one in options}
            function(**values, **{name: together})

        return with_signature(command, parameters, function)

    return made
