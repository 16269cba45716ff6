"""``where``, ``maximum`` and friends for plain numbers and numpy arrays alike; plain numbers never import numpy."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

FEW_COLUMNS = 32
"""So few are sooner computed than compared."""
KEPT_BYTES = 2**24
"""Bytes of answers to arrays that a function of arrays has given last."""
FEW_BYTES = 512
"""Arrays up to this size are told apart by their bytes, larger ones by a digest."""
Number = Any  # int, float, or a numpy array of either
PLAIN = (float, int)
"""Made once: a step asks thousands of numbers whether they are plain."""
_SIMPLE = frozenset((float, int, bool))
"""Types of nearly all of them, which are told sooner."""


def _plain(*values: Number) -> bool:
    for value in values:  # noqa: SIM110 (a generator costs more, and one layout asks hundreds of times)
        if not isinstance(value, PLAIN):
            return False
    return True


def nothing(value: Number) -> bool:
    """Whether a number is a plain zero; an array never is, whatever it holds, as other arrays may depend on its
    axes."""
    return isinstance(value, PLAIN) and value == 0


def where(condition: Number, yes: Number, no: Number) -> Number:
    """``yes`` where the condition holds, else ``no``; both are evaluated, so guard divisions."""
    if isinstance(condition, int):
        return yes if condition else no
    import numpy

    return numpy.where(condition, yes, no)


def maximum(*values: Number) -> Number:
    """The elementwise largest of some numbers or arrays, mostly two."""
    if len(values) == 2:
        one, other = values
        if type(one) in _SIMPLE and type(other) in _SIMPLE:
            return other if other > one else one
    if _plain(*values):
        return max(values)
    import numpy

    return numpy.maximum(*values) if len(values) == 2 else functools.reduce(numpy.maximum, values)


def largest(values: Iterable[Number]) -> Number:
    """The largest of any number of values, elementwise; a generator's are taken one at a time, so that no two need be
    in memory at once."""
    return functools.reduce(maximum, values)


def minimum(*values: Number) -> Number:
    """The elementwise smallest of some numbers or arrays, mostly two."""
    if len(values) == 2:
        one, other = values
        if type(one) in _SIMPLE and type(other) in _SIMPLE:
            return other if other < one else one
    if _plain(*values):
        return min(values)
    import numpy

    return numpy.minimum(*values) if len(values) == 2 else functools.reduce(numpy.minimum, values)


def total(*values: Number) -> Number:
    """Their sum; of arrays that broadcast the small ones come first, so that few additions run over all layouts."""
    if _plain(*values):
        return sum(values)
    return sum(sorted(values, key=lambda value: getattr(value, "size", 0)))


def product(one: Number, other: Number) -> Number:
    """Their product; a plain zero stays one, so that arrays do not grow along axes that do not matter, and a plain one
    changes nothing."""
    if isinstance(one, PLAIN) and one in (0, 1):
        return other if one else 0.0
    if isinstance(other, PLAIN) and other in (0, 1):
        return one if other else 0.0
    return one * other


def plus(one: Number, other: Number) -> Number:
    """Their sum; a plain zero adds nothing, so that no array is gone over for it."""
    if isinstance(one, PLAIN) and one == 0:
        return other
    return one if isinstance(other, PLAIN) and other == 0 else one + other


def ceil_div(numerator: Number, denominator: Number) -> Number:
    """Whole number of parts of size ``denominator`` that cover ``numerator``."""
    return -(-numerator // denominator)


def round_up(value: Number, multiple: Number) -> Number:
    """The smallest multiple that is at least ``value``."""
    return ceil_div(value, multiple) * multiple


def log2(value: Number) -> Number:
    """Binary logarithm."""
    if _plain(value):
        return math.log2(value)
    import numpy

    return numpy.log2(value)


def floor(value: Number) -> Number:
    """The largest whole number not above ``value``."""
    if _plain(value):
        return math.floor(value)
    import numpy

    return numpy.floor(value)


def exp(value: Number) -> Number:
    """e to the power of ``value``."""
    if _plain(value):
        return math.exp(value)
    import numpy

    return numpy.exp(value)


def take(table: Sequence[Any], index: Number) -> Number:
    """Entries of a table at whole indices; plain numbers give plain numbers."""
    if _plain(index):
        return table[int(index)]
    import numpy

    return numpy.asarray(table)[numpy.asarray(index, dtype=numpy.intp)]


def ceil_log2(value: Number) -> Number:
    """The smallest number of doublings of 1 that reaches ``value``."""
    return -floor(-log2(value))


def some(condition: Number) -> bool:
    """Whether it holds for the layout, or for any of an array of layouts."""
    return bool(condition) if isinstance(condition, (bool, int)) else bool(condition.any())


def kept(function: Callable[..., Number]) -> Callable[..., Number]:
    """Decorator: a function whose answers are kept, as layouts and runs often ask the same again: up to so many for
    plain numbers, and for arrays as many as take little memory, of those each computed once for its distinct
    columns."""
    known = functools.lru_cache(maxsize=8192)(function)
    arrays: OrderedDict[tuple[Any, ...], Number] = OrderedDict()
    held = 0

    @functools.wraps(function)
    def asked(*values: Number) -> Number:
        nonlocal held
        try:
            return known(*values)
        except TypeError:  # arrays are not hashable
            pass
        key = tuple(map(mark, values))
        if key in arrays:
            arrays.move_to_end(key)
            return arrays[key]
        found = arrays[key] = by_column(function, *values)
        held += found.nbytes
        while held > KEPT_BYTES and len(arrays) > 1:
            held -= arrays.popitem(last=False)[1].nbytes
        return found

    return asked


def mark(value: Any) -> Any:
    """Tells values apart: a number is itself, an array its shape and its bytes, or a digest of many."""
    if isinstance(value, PLAIN):
        return value
    if value.nbytes <= FEW_BYTES:
        return value.shape, value.dtype.str, value.tobytes()
    import hashlib

    return value.shape, value.dtype.str, hashlib.blake2b(value.tobytes(), digest_size=16).digest()


def by_column(function: Callable[..., Number], *values: Number) -> Number:
    """A function of arrays and plain numbers, entry by entry, computed once for all places along the last axis at which
    every array has the same: meshes of a search that differ in what the function does not look at."""
    columns = distinct_columns(values)
    if columns is None:
        return function(*values)
    return function(*columns.of(values))[..., columns.places]


class Columns(NamedTuple):
    """Places along the last axis of some arrays: the ``first`` of each kind, and which kind each place is."""

    first: Any
    places: Any

    def of(self, values: Sequence[Number]) -> list[Number]:
        """The values at the first place of each kind."""
        return [one[..., self.first] if _wide(one) else one for one in values]


def _wide(value: Number) -> bool:
    return not isinstance(value, PLAIN) and value.ndim > 0 and value.shape[-1] > 1


def distinct_columns(values: Sequence[Number]) -> Columns | None:
    """Places at which every array has the same; None where they are few, or mostly differ."""
    import numpy

    wide = [one for one in values if _wide(one)]
    length = wide[0].shape[-1] if wide else 0
    if length < FEW_COLUMNS:
        return None
    rows = numpy.concatenate([one.reshape(-1, length) for one in wide])
    marks = numpy.sqrt(numpy.arange(2, len(rows) + 2)) @ rows
    _, first, places = numpy.unique(marks, return_index=True, return_inverse=True)
    if 2 * len(first) > length or not (rows[:, first][:, places] == rows).all():  # unlike columns may share a mark
        return None
    return Columns(first, places)


def each(function: Callable[..., float], *values: Number) -> Number:
    """A function of plain whole numbers; of arrays it is asked once for each combination that occurs."""
    if _plain(*values):
        return function(*values)
    import numpy

    table = numpy.stack(numpy.broadcast_arrays(*values))
    columns = list(zip(*table.reshape(len(values), -1).tolist(), strict=True))
    answers = {column: function(*column) for column in dict.fromkeys(columns)}
    return numpy.array([answers[column] for column in columns]).reshape(table.shape[1:])
