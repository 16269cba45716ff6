"""Columns of layouts as a Parquet file, in row groups of one size, so that memory stays bounded."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from distsim.engine.layouts.space import Array
from distsim.errors import DistsimError

ROWS = 262_144
"""Rows of a row group: some 20 MB until it is written."""


class ParquetFile:
    """Takes tables of any length and writes them in row groups; words are dictionaries."""

    def __init__(self, path: Path, described: Mapping[str, tuple[str, str]], about: Mapping[str, Any]) -> None:
        self.arrow, self.parquet = library()
        self.described, self.path = described, path
        self.about = {"distsim.search": json.dumps(dict(about))}
        self.parts: dict[str, list[Array]] = {name: [] for name in described}
        self.words: dict[str, dict[str, int]] = {}
        self.held = self.written = 0
        self.writer: Any = None

    def add(self, made: Mapping[str, Any]) -> None:
        """Take in a table of columns; a word or number stands for all its rows."""
        count = len(made["seconds"])
        for name, value in made.items():
            self.parts[name].append(self._numbers(name, value, count))
        self.held += count
        while self.held >= ROWS:
            self._write(ROWS)

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        if self.held or self.writer is None:
            self._write(self.held)
        self.writer.close()

    def _numbers(self, name: str, value: Any, count: int) -> Array:
        """Numbers as narrow as they may be; of words, their places in the column's dictionary."""
        if isinstance(value, str):
            return numpy.full(count, self._place(name, value), numpy.int8)
        if isinstance(value, numpy.ndarray) and value.dtype.kind == "U":
            distinct, inverse = numpy.unique(value, return_inverse=True)
            return numpy.array([self._place(name, str(word)) for word in distinct], numpy.int8)[inverse]
        array = numpy.asarray(value)
        narrow = array if array.dtype.kind == "f" or name.endswith("_bytes") else array.astype(numpy.int32)
        return numpy.broadcast_to(narrow, (count,))

    def _place(self, name: str, word: str) -> int:
        known = self.words.setdefault(name, {})
        return known.setdefault(word, len(known))

    def _write(self, count: int) -> None:
        arrays = []
        for name, parts in self.parts.items():
            joined = numpy.concatenate(parts) if parts else numpy.zeros(0)
            self.parts[name] = [joined[count:]]
            arrays.append(self._arrow(name, joined[:count]))
        self.held -= count
        if self.writer is None:
            fields = [
                self.arrow.field(name, array.type, nullable=False, metadata=_told(*self.described[name]))
                for name, array in zip(self.parts, arrays, strict=True)
            ]
            self.schema = self.arrow.schema(fields, metadata=self.about)
            self.writer = self.parquet.ParquetWriter(self.path, self.schema, compression="zstd")
        self.writer.write_table(self.arrow.Table.from_arrays(arrays, schema=self.schema), row_group_size=max(count, 1))
        self.written += count

    def _arrow(self, name: str, values: Array) -> Any:
        if name in self.words:
            return self.arrow.DictionaryArray.from_arrays(values, list(self.words[name]))
        return self.arrow.array(values)


def _told(unit: str, meaning: str) -> dict[str, str]:
    return {"meaning": meaning, **({"unit": unit} if unit else {})}


def library() -> tuple[Any, Any]:
    """pyarrow, which only this file format needs."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DistsimError(
            "a Parquet file needs the package pyarrow, which is not installed",
            "install the extra: pip install 'distsim[parquet]'", "or write a CSV file: --all layouts.csv",
        ) from None  # fmt: skip
