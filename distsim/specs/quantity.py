"""Field types of specs: text with a unit in, a checked SI number out (``"80 GiB"`` becomes 85899345920)."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticKnownError

from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.units import parse


def _number(dimension: str) -> Callable[[Any, ValidationInfo], float]:
    """A validator that reads a quantity; a DistsimError becomes the ValueError that pydantic collects."""

    def read(value: Any, info: ValidationInfo) -> float:
        try:
            return parse(value, dimension, info.field_name or "value")
        except DistsimError as error:
            raise ValueError("; ".join([error.problem, *error.hints])) from None

    return read


def _whole(dimension: str) -> Callable[[Any, ValidationInfo], int]:
    """Like ``_number``, rounded to a whole number: nobody has half a byte."""
    read = _number(dimension)
    return lambda value, info: round(read(value, info))


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
    """Bounds of a plain number that many fields have: pydantic works out once what they ask for, not for each field."""

    def __init__(self, bounds: Any) -> None:
        self.bounds = bounds
        self.schema: CoreSchema | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.schema is None:
            plain = _plain("float_type" if float in (source, *get_args(source)) else "int_type")
            self.schema = handler.generate_schema(Annotated[source, self.bounds, BeforeValidator(plain)])
        return self.schema


Bytes = Annotated[int, BeforeValidator(_whole("B")), Field(gt=0)]
HeldBytes = Annotated[float, BeforeValidator(_number("B")), Field(ge=0)]
BytesPerSecond = Annotated[float, BeforeValidator(_number("B/s")), Field(gt=0)]
FlopPerSecond = Annotated[float, BeforeValidator(_number("FLOP/s")), Field(gt=0)]
Hertz = Annotated[float, BeforeValidator(_number("Hz")), Field(gt=0)]
Seconds = Annotated[float, BeforeValidator(_number("s")), Field(ge=0)]
Watts = Annotated[float, BeforeValidator(_number("W")), Field(gt=0)]
Ratio = Annotated[float, BeforeValidator(_number("1")), Field(ge=0)]
Part = Annotated[float, BeforeValidator(_number("1")), Field(ge=0, le=1)]
WireFormat = Annotated[str, BeforeValidator(_wire_format)]
Dollars = Annotated[float, BeforeValidator(_number("USD")), Field(ge=0)]

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

KeptPart = Literal["qkv", "context", "out", "up", "down"]
"""Queries, keys and values; what attention makes of them; its projection; the two products of an MLP or of experts."""
QueryKeyNorm = Literal["none", "head", "unit", "full"]
