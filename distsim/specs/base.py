"""What every spec shares: frozen, no unknown fields, provenance, and errors a person can act on."""

import datetime
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from distsim.errors import DistsimError

FIELD = "the given value"
"""Stands in a mistake for the name of the field that has it, which validators that many fields share do not know."""


def source_of(source: Mapping[str, str], figure: str) -> str | None:
    """The source of a dotted figure: its own, else its table's, else the one named ``other``."""
    while figure:
        if figure in source:
            return source[figure]
        figure = figure.rpartition(".")[0]
    return source.get("other")


class Spec(BaseModel):
    """A thing the user states: immutable, and an unknown field is an error. Defaults are what reading them would make
    of them, and are not read again each time (tests/test_defaults.py): most fields of most specs have theirs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "") -> Self:
        """The spec stated by ``data``; ``where`` (a file) opens the message when something is wrong."""
        if where and not data.keys() - {"name"}:
            raise DistsimError("is empty; a preset needs fields", "distsim show prints those of a similar one",
                               where=where)  # fmt: skip
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            from distsim.specs.mistakes import explain

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
