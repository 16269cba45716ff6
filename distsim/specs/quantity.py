"""Field types of specs: text with a unit in, a checked SI number out (``"80 GiB"`` becomes 85899345920)."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError

from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.specs.base import FIELD
from distsim.units import parse


def _number(dimension: str) -> Callable[[Any], float]:
    """A validator that reads a quantity; a DistsimError becomes the ValueError that pydantic collects."""

    def read(value: Any) -> float:
        try:
            return parse(value, dimension, FIELD)
        except DistsimError as error:
            raise ValueError("; ".join([error.problem, *error.hints])) from None

    return read


def _whole(dimension: str) -> Callable[[Any], int]:
    """Like ``_number``, rounded to a whole number: nobody has half a byte."""
    read = _number(dimension)
    return lambda value: round(read(value))


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same validator for what may be left out."""
    return lambda value: None if value is None else read(value)


def _wire_format(value: Any) -> Any:
    """A number format of known width; anything else is told what there is."""
    if not isinstance(value, str) or value not in DTYPE_BYTES:
        raise ValueError(f"{value!r} is not a choice; choices: {', '.join(DTYPE_BYTES)}")
    return value


def _plain(kind: Literal["int_type", "float_type"]) -> Callable[[Any], Any]:
    """A validator that refuses numbers in quotes, which pydantic would read and a config.json may not have either."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            raise PydanticKnownError(kind)
        return value

    return read


class Once:
    """Bounds of a number that many fields have: pydantic works out once what they ask for, not for each field. A plain
    number, unless a validator is given that reads it."""

    def __init__(self, bounds: Any, read: Callable[[Any], Any] | None = None) -> None:
        self.bounds, self.read = bounds, read
        self.schema: CoreSchema | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.schema is None:
            read = self.read or _plain("float_type" if float in (source, *get_args(source)) else "int_type")
            kept = _or_none(read) if self.read is not None and type(None) in get_args(source) else read
            self.schema = handler.generate_schema(Annotated[source, self.bounds, BeforeValidator(kept)])
        return self.schema


Bytes = Annotated[int, Once(Field(gt=0), _whole("B"))]
HeldBytes = Annotated[float, Once(Field(ge=0), _number("B"))]
BytesPerSecond = Annotated[float, Once(Field(gt=0), _number("B/s"))]
FlopPerSecond = Annotated[float, Once(Field(gt=0), _number("FLOP/s"))]
Hertz = Annotated[float, Once(Field(gt=0), _number("Hz"))]
Seconds = Annotated[float, Once(Field(ge=0), _number("s"))]
Watts = Annotated[float, Once(Field(gt=0), _number("W"))]
Ratio = Annotated[float, Once(Field(ge=0), _number("1"))]
Part = Annotated[float, Once(Field(ge=0, le=1), _number("1"))]
MaybeBytes = Annotated[int | None, Once(Field(gt=0), _whole("B"))]
MaybeBytesPerSecond = Annotated[float | None, Once(Field(gt=0), _number("B/s"))]
MaybeFlopPerSecond = Annotated[float | None, Once(Field(gt=0), _number("FLOP/s"))]
MaybeHertz = Annotated[float | None, Once(Field(gt=0), _number("Hz"))]
MaybeWatts = Annotated[float | None, Once(Field(gt=0), _number("W"))]
MaybePart = Annotated[float | None, Once(Field(ge=0, le=1), _number("1"))]
Reached = Annotated[float | None, Once(Field(ge=0, le=1.2), _number("1"))]
"""A share of a datasheet's figure, which chips have exceeded."""
WireFormat = Annotated[str, BeforeValidator(_wire_format)]
Dollars = Annotated[float, Once(Field(ge=0), _number("USD"))]

# Plain numbers by their bounds. Shared types take pydantic two thirds of the time of a ``Field`` for each (start-up).
Count = Annotated[int, Once(Field(ge=1))]
Natural = Annotated[int, Once(Field(ge=0))]
Positive = Annotated[float, Once(Field(gt=0))]
Amount = Annotated[float, Once(Field(ge=0))]
Factor = Annotated[float, Once(Field(ge=1))]
Share = Annotated[float, Once(Field(gt=0, le=1))]
Fraction = Annotated[float, Once(Field(ge=0, lt=1))]
MaybeCount = Annotated[int | None, Once(Field(ge=1))]
MaybeNatural = Annotated[int | None, Once(Field(ge=0))]
MaybePositive = Annotated[float | None, Once(Field(gt=0))]
MaybeAmount = Annotated[float | None, Once(Field(ge=0))]
MaybeShare = Annotated[float | None, Once(Field(gt=0, le=1))]
MaybeFraction = Annotated[float | None, Once(Field(ge=0, lt=1))]

ZeroStage = Annotated[int, Once(Field(ge=0, le=3))]
AttentionProducts = Annotated[int | None, Once(Field(ge=5))]
"""Of flash attention's backward."""

KeptPart = Literal["qkv", "context", "out", "up", "down"]
"""Queries, keys and values; what attention makes of them; its projection; the two products of an MLP or of experts."""
QueryKeyNorm = Literal["none", "head", "unit", "full"]
