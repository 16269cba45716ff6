"""Named tuples that are made sooner and changed sooner than those of the standard library: a command makes a hundred
classes of them at its start, a replay of runs changes hundreds of thousands of them."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 14):  # where annotations are no longer there when a class is made
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter as place_of
    from types import CodeType, FunctionType

    MADE = tuple.__new__

    @functools.cache
    def _maker(fields: int) -> CodeType:
        """The code that makes a tuple of so many fields, whose names are put in later: what has to be parsed is parsed
        once for each number of them."""
        names = ", ".join(f"_{place}" for place in range(fields))
        made: FunctionType = eval(f"lambda _cls, {names}: MADE(_cls, ({names}{',' * (fields == 1)}))", globals())
        return made.__code__

    class Record(tuple):
        """What all named tuples do."""

        __slots__ = ()
        _fields = ()
        _field_defaults = {}  # noqa: RUF012
        _places = {}  # noqa: RUF012
        """Where each field is."""

        @classmethod
        def _make(cls, values):
            made = MADE(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changed):
            values = [*self]
            places = self._places
            try:
                for name, value in changed.items():
                    values[places[name]] = value
            except KeyError:
                wrong = [name for name in changed if name not in places]
                raise ValueError(f"Got unexpected field names: {wrong!r}") from None
            return MADE(type(self), values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            told = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({told})"

        def __getnewargs__(self):
            return tuple(self)

    class _Maker(type):
        """Makes a tuple of a class that states the types of its fields."""

        def __new__(cls, name, bases, stated):
            fields = tuple(stated.get("__annotations__", ()))
            defaults = {field: stated[field] for field in fields if field in stated}
            if fields[len(fields) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name} has fields without defaults behind those with one")
            code = _maker(len(fields)).replace(co_varnames=("_cls", *fields), co_qualname=f"{name}.__new__")
            own = {
                "__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults,
                "_places": {field: place for place, field in enumerate(fields)},
                "__new__": FunctionType(code, globals(), "__new__", tuple(defaults.values())),
            }  # fmt: skip
            getters = {field: place_of(place, None) for place, field in enumerate(fields)}
            return type(name, (Record,), {**stated, **own, **getters})

    _BASE = type.__new__(_Maker, "NamedTuple", (), {})

    def NamedTuple() -> None:
        """The base that a class of named fields states."""

    NamedTuple.__mro_entries__ = lambda bases: (_BASE,)
