"""Field types of specs: text with a unit in, a checked SI number out (``"80 GiB"`` becomes 85899345920)."""

from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError

from distsim.errors import DistsimError
from distsim.formulas.traffic import DTYPE_BYTES
from distsim.specs.base import FIELD
from distsim.specs.limits import BYTE_RATES, CHIP_WATTS, LARGEST_DEPTH, LARGEST_TILES, NIC_RATES, RANGES, Range
from distsim.units import GIGA, gib, in_bits, in_other_units, parse


def _number(dimension: str, possible: Range | None = None) -> Callable[[Any], float]:
    """A validator that reads a quantity; a DistsimError becomes the ValueError that pydantic collects. What hardware
    cannot be is refused where the range of what is ``possible`` is given; types refuse what is not positive."""

    def read(value: Any) -> float:
        try:
            number = parse(value, dimension, FIELD)
        except DistsimError as error:
            raise ValueError("; ".join([error.problem, *error.hints])) from None
        if possible is not None and number > 0 and not possible.least <= number <= possible.most:
            raise ValueError(_impossible(value, number, dimension, possible))
        if possible is not None and not possible.bits and isinstance(value, str) and in_bits(value):
            raise ValueError(bits_told(FIELD, value))
        return number

    return read


def bits_told(name: str, value: str) -> str:
    """What is wrong with bits where everybody states bytes, and what would be right."""
    rate = value.rstrip().endswith(("/s", "ps"))
    number = parse(value, "B/s" if rate else "B")
    told = f"{number / GIGA:g} GB/s" if rate else gib(number)
    return f"{name} {value!r} is {told} (a small b is bits); did you mean {in_bits(value)}? Otherwise write {told}"


def refuse_bits(stated: Any, kinds: Collection[str], *names: str) -> Any:
    """What a table of a link states, where its kind is none of those whose rates are in bytes, or they are."""
    kind = stated.get("kind") if isinstance(stated, dict) else None
    if isinstance(kind, str) and kind in kinds:
        for name in names:
            if in_bits(stated.get(name)):
                raise ValueError(bits_told(name, stated[name]))
    return stated


def _impossible(value: Any, number: float, dimension: str, possible: Range) -> str:
    """Why a number is none that hardware has, and in which units it would be."""
    bare = isinstance(value, (int, float)) or str(value).strip().replace(".", "", 1).isdigit()
    told = f"{value} (a bare number is in {dimension})" if bare else f"{value!r}"
    low, high = possible.usual
    others = [f"{number:g} {unit}" for unit in possible.units] if bare else in_other_units(value, possible.units)
    meant = " or ".join(one for one in others if low <= parse(one, dimension) <= high)
    asked = f"did you mean {meant}?" if meant else ""
    ends = possible.told or f"it must be {possible.least:g} to {possible.most:g} {dimension}"
    side = "too small" if number < possible.least else "too large"
    hint = asked if bare and asked else f"{ends}: {asked}".removesuffix(": ")
    return f"{FIELD} {told} is {side} to be meant; {hint}"


def _physical(dimension: str) -> Callable[[Any], float]:
    """A validator of a quantity that some hardware has."""
    return _number(dimension, RANGES[dimension])


def _whole(dimension: str) -> Callable[[Any], int]:
    """Like ``_physical``, rounded to a whole number: nobody has half a byte."""
    read = _physical(dimension)
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

    def __init__(self, bounds: Any, read: Callable[[Any], Any] | None = None, takes: str = "") -> None:
        self.bounds, self.read = bounds, read
        self.takes = takes
        """What to write, in words (specs/mistakes.py tells it where the field is missing)."""
        self.schema: CoreSchema | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.schema is None:
            read = self.read or _plain("float_type" if float in (source, *get_args(source)) else "int_type")
            kept = _or_none(read) if self.read is not None and type(None) in get_args(source) else read
            self.schema = handler.generate_schema(Annotated[source, self.bounds, BeforeValidator(kept)])
        return self.schema


A_SIZE, A_RATE = 'a size with its unit, e.g. "80 GiB"', 'a rate with its unit, e.g. "3350 GB/s"'
A_POWER, A_TIME = 'a power with its unit, e.g. "700 W"', 'a time with its unit, e.g. "5 us"'
Bytes = Annotated[int, Once(Field(gt=0), _whole("B"), A_SIZE)]
HeldBytes = Annotated[float, Once(Field(ge=0), _number("B"), A_SIZE)]
BytesPerSecond = Annotated[float, Once(Field(gt=0), _physical("B/s"), A_RATE)]
ByteRate = Annotated[float, Once(Field(gt=0), _number("B/s", BYTE_RATES), A_RATE)]
"""Which nobody states in bits."""
Seconds = Annotated[float, Once(Field(ge=0), _number("s"), A_TIME)]
Watts = Annotated[float, Once(Field(gt=0), _physical("W"), A_POWER)]
Ratio = Annotated[float, Once(Field(ge=0), _number("1"))]
Part = Annotated[float, Once(Field(ge=0, le=1), _number("1"))]
MaybeBytes = Annotated[int | None, Once(Field(gt=0), _whole("B"))]
MaybeBytesPerSecond = Annotated[float | None, Once(Field(gt=0), _physical("B/s"))]
MaybeByteRate = Annotated[float | None, Once(Field(gt=0), _number("B/s", BYTE_RATES))]
MaybeNicRate = Annotated[float | None, Once(Field(gt=0), _number("B/s", NIC_RATES))]
MaybeFlopPerSecond = Annotated[float | None, Once(Field(gt=0), _physical("FLOP/s"))]
MaybeHertz = Annotated[float | None, Once(Field(gt=0), _physical("Hz"))]
MaybeWatts = Annotated[float | None, Once(Field(gt=0), _physical("W"))]
MaybeChipWatts = Annotated[float | None, Once(Field(gt=0), _number("W", CHIP_WATTS))]
MaybePart = Annotated[float | None, Once(Field(ge=0, le=1), _number("1"))]
Reached = Annotated[float | None, Once(Field(ge=0, le=1.2), _number("1"))]
"""A share of a datasheet's figure, which chips have exceeded."""
WireFormat = Annotated[str, BeforeValidator(_wire_format)]
Dollars = Annotated[float, Once(Field(ge=0), _number("USD"))]

# Plain numbers by their bounds. Shared types take pydantic two thirds of the time of a ``Field`` for each (start-up).
Count = Annotated[int, Once(Field(ge=1))]
Depth = Annotated[int, Once(Field(ge=1, le=LARGEST_DEPTH))]
"""Layers of a network."""
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


def _tiles(value: Any) -> Any:
    """``auto``, or a whole number of tiles."""
    if value is None or value == "auto":
        return value
    number = int(value) if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 2 <= number <= LARGEST_TILES:
        raise ValueError(f"{value!r} is neither auto nor a whole number of tiles, 2 to {LARGEST_TILES}")
    return number


MaybeTiles = Annotated[int | Literal["auto"] | None, BeforeValidator(_tiles)]

ZeroStage = Annotated[int, Once(Field(ge=0, le=3))]
AttentionProducts = Annotated[int | None, Once(Field(ge=5))]
"""Of flash attention's backward."""

KeptPart = Literal["qkv", "context", "out", "up", "down"]
"""Queries, keys and values; what attention makes of them; its projection; the two products of an MLP or of experts."""
QueryKeyNorm = Literal["none", "head", "unit", "each", "full"]
