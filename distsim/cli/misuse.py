"""Command lines that do not parse, told as every other mistake is: what is wrong, then what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distsim.errors import DistsimError

KINDS = {"valid integer": "a whole number", "valid number": "a number"}
"""What the parser says a text should be, in plain words."""
SURPLUS = "Got unexpected extra argument"


def as_error(wrong: Any, command: str, arguments: Sequence[str]) -> DistsimError:
    """The mistake behind an exception of the parser."""
    parser_says = str(wrong.format_message())
    hint = f"distsim {command} --help lists the options"
    if hasattr(wrong, "possibilities"):
        near = f"did you mean {', '.join(wrong.possibilities)}?" if wrong.possibilities else ""
        if wrong.option_name == "--model":
            near = f"a model stands by itself: distsim {command} llama-7b"
        return DistsimError(f"unknown option {wrong.option_name}", near, hint)
    if parser_says.startswith(SURPLUS):
        return DistsimError(
            f"unexpected argument {parser_says.partition(' (')[2].removesuffix('.').removesuffix(')')}", hint
        )
    kind = next((words for text, words in KINDS.items() if text in parser_says), None)
    flag = parser_says.partition("'")[2].partition("'")[0]
    given = _value_of(flag, arguments)
    least = parser_says.partition("should be greater than or equal to ")[2].rstrip(".")
    if least and given is not None:
        return DistsimError(f"{flag} {given} is too small", f"it must be at least {least}", hint)
    if kind is None or given is None:
        return DistsimError(parser_says.rstrip("."), hint)
    example = _written_out(given) if kind == KINDS["valid integer"] else ""
    return DistsimError(f"{flag} {given!r} is not {kind}", example, hint)


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _written_out(given: str) -> str:
    """What somebody means who writes 8k, 1e6 or 4,096: nothing where that is not plain."""
    from distsim.units import KIB, MIB, parse

    try:
        value = parse(given, "tokens")
    except DistsimError:
        return ""
    if value != int(value) or not 0 < value < 1e15:
        return ""
    binary = {"k": KIB, "m": MIB}.get(given[-1:].lower())
    other = f" or {round(value / (1e3 if binary == KIB else 1e6) * binary)}" if binary else ""
    return f"write {int(value)}{other}"
