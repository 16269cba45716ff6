"""What is wrong with what a user stated, in sentences that a person can act on; loaded where something is."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from distsim.errors import DistsimError
from distsim.specs.base import FIELD, Later


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, type) and issubclass(annotation, Later):
        yield annotation.spec()
    for part in get_args(annotation):
        yield from _models_in(part)


def _table_at(spec: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The table in which ``location`` lies."""
    for part in location[:-1]:
        field = spec.model_fields.get(str(part))
        spec = next(_models_in(field.annotation), spec) if field else spec
    return spec


def _wanted(spec: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """What a field takes, where its type says it in few words."""
    field = _table_at(spec, location).model_fields.get(str(location[-1]))
    kind = None if field is None else field.annotation
    if field is not None and (takes := next((one.takes for one in field.metadata if getattr(one, "takes", "")), "")):
        return f"it takes {takes}"
    if get_origin(kind) is Literal:
        return f"choices: {', '.join(map(str, get_args(kind)))}"
    table = f"write a table [{'.'.join(map(str, location))}]"
    if get_origin(kind) is dict:
        return table
    if str in get_args(kind):
        return "it takes a name or a file"
    if next(_models_in(kind), None) is not None:
        return table
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return f"it takes {plain[kind]}" if kind in plain else ""


UNKNOWN, FIELDS = "unknown field ", "fields: "
"""How a mistake begins that is a field of that name, and a hint that lists all fields of a table."""


BRANCHES = ("bool", "int", "float", "str")
"""What pydantic adds to the place of a mistake in a field of several types: which of them it tried."""


def _place(error: Any, spec: type[BaseModel]) -> tuple[int | str, ...]:
    """The field that a mistake is in, without which of its types was tried."""
    found: list[int | str] = []
    for part in error["loc"]:
        field = _table_at(spec, (*found, "")).model_fields.get(str(part)) if found else None
        word = str(part)
        tried = word in BRANCHES or word.startswith(("function-", "literal["))
        whole = found and field is None and word in _names_in(spec, tuple(found))
        if not tried and not whole:
            found.append(part)
    return tuple(found)


def _names_in(spec: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names of the specs that a field takes."""
    field = _table_at(spec, location).model_fields.get(str(location[-1]))
    return [] if field is None else [one.__name__ for one in _models_in(field.annotation)]


def _of_one_type(errors: list[Any], spec: type[BaseModel]) -> list[Any]:
    """The mistakes without those of a type that was not meant: of a table that it is no word, of a word that it is no
    table."""
    places = [_place(one, spec) for one in errors]
    kept = []
    for error, place in zip(errors, places, strict=True):
        beside = [one for one, other in zip(errors, places, strict=True) if other[: len(place)] == place]
        other_type = "string_type" if isinstance(error["input"], Mapping) else "model_type"
        if len(beside) == 1 or error["type"] != other_type:
            kept.append(error)
    return kept


def _sentence(error: Any, spec: type[BaseModel]) -> tuple[str, str]:
    """One mistake as (what is wrong, what would be right)."""
    location = _place(error, spec)
    name = ".".join(str(part) for part in location)
    if error["type"] == "extra_forbidden":
        from distsim.other_names import meant

        fields = list(_table_at(spec, location).model_fields)
        return f"{UNKNOWN}{name!r}", meant(str(location[-1]), fields) or f"{FIELDS}{', '.join(fields)}"
    if error["type"] == "missing":
        return f"field {name!r} is missing", _wanted(spec, location)
    kind = KINDS.get(error["type"])
    if name and kind and isinstance(error["input"], Mapping):
        many = kind == "a list" and _names_in(spec, location)
        return f"{name} is a table, not {kind}", f"write [[{name}]]" if many else EXAMPLES.get(kind, "")
    if name and (plain := _bound(error)):
        hint = _wanted(spec, location) if plain[0] == "is not a table" else plain[1]
        return f"{name} {_shown(error['input'])} {plain[0]}", hint
    message = error["msg"].removeprefix("Value error, ").replace(FIELD, name or "value")
    told = repr(error["input"]) in message or isinstance(error["input"], (dict, BaseModel))
    given = "" if told else f" (given {_short(error['input'])})"
    problem, _, hint = message.partition("; ")
    named = not name or problem.startswith(f"{name} ")
    return (problem if named else f"{name}: {problem}") + given, hint


KINDS = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "bool_parsing": "true or false",
    "bool_type": "true or false", "string_type": "a string", "finite_number": "a finite number",
    "tuple_type": "a list", "list_type": "a list", "dict_type": "a table", "model_type": "a table",
    "model_attributes_type": "a table", "date_type": "a date", "date_parsing": "a date",
    "date_from_datetime_parsing": "a date", "date_from_datetime_inexact": "a date",
}  # fmt: skip
"""What a value should be, by pydantic's name for the mistake."""
EXAMPLES = {"a date": "write it as 2026-11-21, without quotes", "a list": 'write e.g. ["one", "two"] or [1, 2]'}
"""What to write instead."""
LONGEST_SHOWN, SHOWN_OF_LONG = 200, 60
"""Letters of a wrong value that is shown whole, and of a longer one that are shown."""
MOST_UNKNOWN = 6
"""Unknown fields that are named besides the first mistake."""


def _bound(error: Any) -> tuple[str, str] | None:
    """A number out of its range, a word out of its list or a value of another kind, as (what is wrong, what would be
    right)."""
    from distsim.other_choices import choice_meant

    limits: dict[str, Any] = error.get("ctx") or {}
    if isinstance(error["input"], float) and error["input"] != error["input"]:
        return "is not a number", ""
    for key, wrong, right in (
        ("ge", "is too small", "at least"),
        ("gt", "is too small", "more than"),
        ("le", "is too large", "at most"),
        ("lt", "is too large", "less than"),
    ):
        if key in limits:
            return wrong, f"it must be {right} {_shown(limits[key])}"
    if error["type"] == "literal_error":
        words = str(limits["expected"]).replace(" or ", ", ").replace("'", "")
        near = choice_meant(str(error["input"]), words.split(", "))
        return "is not one of the choices", " ".join(filter(None, (near, f"choices: {words}")))
    if error["type"] == "string_too_short":
        least = limits["min_length"]
        return ("is too short", f"it must have at least {least} characters") if least > 1 else ("is empty", "name one")
    if error["type"] == "too_short":
        return "is too short", f"it must have at least {limits['min_length']} entries"
    if error["type"] == "string_pattern_mismatch":
        return "is not written as expected", f"it must match {limits['pattern']}"
    kind = KINDS.get(error["type"])
    if kind is None or isinstance(error["input"], (dict, BaseModel)):
        return None
    hint = _unquoted(error["input"]) if "number" in kind else EXAMPLES.get(kind, "")
    return f"is not {kind}", hint


def _shown(value: Any) -> str:
    """A value as people write it: no fraction of nothing, commas between thousands of whole numbers."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    return f"{int(value):,}" if whole and abs(value) < 1e15 else _short(value)


def _short(value: Any) -> str:
    """A value as Python writes it, of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:SHOWN_OF_LONG]}… ({len(text):,} characters)"


def _unquoted(value: Any) -> str:
    """What to write for a number in quotes."""
    try:
        float(value)
    except (TypeError, ValueError):
        return ""
    return f"write it without quotes: {value.strip()}" if isinstance(value, str) else ""


def explain(error: ValidationError, spec: type[BaseModel], where: str = "") -> DistsimError:
    """All mistakes that pydantic found, as one DistsimError: the first as the problem, the rest below it."""
    found = _of_one_type(error.errors(include_url=False), spec)
    (problem, hint), *rest = _told_once([_sentence(one, spec) for one in found])
    left = [one for one in rest if one[0].startswith(UNKNOWN)][MOST_UNKNOWN:]
    also = [
        f"also: {other}" + (f" ({advice})" if advice else "") for other, advice in rest if (other, advice) not in left
    ]
    more = [f"also: {len(left)} more unknown fields"] if left else []
    return DistsimError(problem, hint, *also, *more, where=where)


def _told_once(sentences: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The mistakes; a list of all fields stands with the first of those that share it."""
    hints = [hint for _, hint in sentences]
    return [
        (problem, hint if hints.index(hint) == at or not hint.startswith(FIELDS) else "")
        for at, (problem, hint) in enumerate(sentences)
    ]
