"""What every spec shares: frozen, no unknown fields, provenance, and errors a person can act on."""

import datetime
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from distsim.errors import DistsimError


def source_of(source: Mapping[str, str], figure: str) -> str | None:
    """The source of a dotted figure: its own, else its table's, else the one named ``other``."""
    while figure:
        if figure in source:
            return source[figure]
        figure = figure.rpartition(".")[0]
    return source.get("other")


class Spec(BaseModel):
    """A thing the user states: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "") -> Self:
        """The spec stated by ``data``; ``where`` (a file) opens the message when something is wrong."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            if not data.keys() - {"name"} and all(one["type"] == "missing" for one in error.errors()):
                raise DistsimError("is empty; a preset needs fields", "distsim show prints those of a similar one",
                                   where=where) from None  # fmt: skip
            raise explain(error, cls, where) from None
        except DistsimError as error:  # of a spec that explains its mistakes itself
            raise DistsimError(error.problem, *error.hints, where=where or error.where) from None


class Later:
    """Stands for a spec as the type of a field: its module is loaded where somebody states the field (start-up)."""

    place: str

    @classmethod
    def spec(cls) -> type[Spec]:
        """The spec itself."""
        found: type[Spec] = getattr(importlib.import_module(cls.place), cls.__name__)
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: cls.spec().model_validate(value))


def later(file: str, name: str) -> type[Later]:
    """What stands for the spec of that name in a file beside this one."""
    return type(name, (Later,), {"place": f"{__package__}.{file}"})


class Sourced(Spec):
    """A spec whose figures say where they come from; ``checked`` is the day somebody last compared them."""

    name: str
    source: dict[str, str] = Field(default_factory=dict)
    checked: datetime.date | None = None

    @model_validator(mode="before")
    @classmethod
    def _lift_checked(cls, data: Any) -> Any:
        """``checked`` is written inside ``[source]``, next to what it dates."""
        if isinstance(data, dict) and isinstance(data.get("source"), dict) and "checked" in data["source"]:
            source = dict(data["source"])
            data = {**data, "checked": source.pop("checked"), "source": source}
        return data

    @field_validator("name")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError(f"name {value!r} is empty; give one, or leave it out to use the file's own name")
        return value

    def __hash__(self) -> int:
        """By kind and name, so that a spec can be a key although ``source`` is a dict."""
        return hash((type(self).__name__, self.name))

    def source_of(self, figure: str) -> str | None:
        """Where a figure such as ``peak.bf16`` comes from; None when the preset does not say."""
        return source_of(self.source, figure)

    def figures(self) -> Iterator[tuple[str, Any]]:
        """Dotted names and values of every stated number, so that each can be held against its source."""
        yield from _numbers(self, "")


def _numbers(spec: BaseModel, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in type(spec).model_fields:
        value = getattr(spec, field)
        if isinstance(value, BaseModel):
            yield from _numbers(value, f"{prefix}{field}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield prefix + field, value


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
    if get_origin(kind) is Literal:
        return f"choices: {', '.join(map(str, get_args(kind)))}"
    if str in get_args(kind):
        return "it takes a name or a file"
    if next(_models_in(kind), None) is not None:
        return f"write a table [{'.'.join(map(str, location))}]"
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return f"it takes {plain[kind]}" if kind in plain else ""


UNKNOWN, FIELDS = "unknown field ", "fields: "
"""How a mistake begins that is a field of that name, and a hint that lists all fields of a table."""
FIELD = "the given value"
"""Stands in a mistake for the name of the field that has it, which validators that many fields share do not know."""


def _sentence(error: Any, spec: type[BaseModel]) -> tuple[str, str]:
    """One mistake as (what is wrong, what would be right)."""
    location = tuple(part for part in error["loc"] if not str(part).startswith("function-"))
    name = ".".join(str(part) for part in location)
    if error["type"] == "extra_forbidden":
        from distsim.other_names import meant

        fields = list(_table_at(spec, location).model_fields)
        return f"{UNKNOWN}{name!r}", meant(str(location[-1]), fields) or f"{FIELDS}{', '.join(fields)}"
    if error["type"] == "missing":
        return f"field {name!r} is missing", _wanted(spec, location)
    if name and (plain := _bound(error)):
        return f"{name} {_shown(error['input'])} {plain[0]}", plain[1]
    message = error["msg"].removeprefix("Value error, ").replace(FIELD, name or "value")
    told = repr(error["input"]) in message or isinstance(error["input"], (dict, BaseModel))
    given = "" if told else f" (given {error['input']!r})"
    problem, _, hint = message.partition("; ")
    named = not name or problem.startswith(f"{name} ")
    return (problem if named else f"{name}: {problem}") + given, hint


KINDS = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "bool_parsing": "true or false",
    "bool_type": "true or false", "string_type": "a string",
}  # fmt: skip
"""What a value should be, by pydantic's name for the mistake."""
LONGEST_SHOWN = 200
"""Letters of a wrong value that is shown."""
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
        return "is too short", f"it must have at least {limits['min_length']} characters"
    if error["type"] == "string_pattern_mismatch":
        return "is not written as expected", f"it must match {limits['pattern']}"
    kind = KINDS.get(error["type"])
    if kind is None or isinstance(error["input"], (dict, BaseModel)) or len(repr(error["input"])) > LONGEST_SHOWN:
        return None
    return f"is not {kind}", _unquoted(error["input"]) if "number" in kind else ""


def _shown(value: Any) -> str:
    """A value as people write it: no fraction of nothing, commas between thousands of whole numbers."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    return f"{int(value):,}" if whole and abs(value) < 1e15 else repr(value)


def _unquoted(value: Any) -> str:
    """What to write for a number in quotes."""
    try:
        float(value)
    except (TypeError, ValueError):
        return ""
    return f"write it without quotes: {value.strip()}" if isinstance(value, str) else ""


def explain(error: ValidationError, spec: type[BaseModel], where: str = "") -> DistsimError:
    """All mistakes that pydantic found, as one DistsimError: the first as the problem, the rest below it."""
    (problem, hint), *rest = _told_once([_sentence(one, spec) for one in error.errors(include_url=False)])
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
