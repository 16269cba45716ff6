"""Options as they are typed: the one place that knows how a name and a value become a flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NEGATIVE = {"no_sync": "--sync-every-micro-batch"}
"""Switches whose opposite is not their name with ``no-``."""


def flag(name: str, value: Any = None) -> str:
    """The flag of an option without its value: ``--seq``; of a switch that is off its opposite: ``--no-dropout``."""
    spelled = name.replace("_", "-")
    return NEGATIVE.get(name, f"--no-{spelled}") if value is False else f"--{spelled}"


def switch(name: str) -> str:
    """Both flags of a switch, as a parser takes them: ``--dropout/--no-dropout``."""
    return f"{flag(name)}/{flag(name, False)}"


def words(name: str, value: Any) -> list[str]:
    """An option as words of a command line: ``["--seq", "4096"]``, ``["--no-dropout"]``; none for None."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag(name, value)]
    if name == "lora_targets":
        from distsim.specs.tuning import targets_shown

        return [flag(name), targets_shown(value)]
    return [flag(name), str(value).removesuffix(".0") if isinstance(value, float) else str(value)]


def typed(options: Mapping[str, Any]) -> str:
    """Options as a user types them in a shell; what is None is left out."""
    from shlex import join

    return join(word for name, value in options.items() for word in words(name, value))


def to_type(options: str, without: Sequence[str]) -> str:
    """Typed options to add to a command, and those to leave out of it: ``--offload none without --offload-to``."""
    return " ".join(filter(None, (options, *(f"without {flag(name)}" for name in without))))
