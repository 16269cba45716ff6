"""Measured runs: one row of runs.csv as typed cells; unknown columns are ignored, blank cells are None."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from distsim.errors import DistsimError
from distsim.interop.runs.cell_kinds import (
    COUNTS,
    FLAGS,
    FROM_ZERO,
    LEAST_MEASURED,
    MEASURED,
    MOST_MEASURED,
)
from distsim.interop.runs.columns import in_units, read_as
from distsim.interop.runs.number_marks import marks_of, plain_numbers
from distsim.interop.runs.numbers import number_in
from distsim.plain_files import refuse_large, refuse_special
from distsim.specs.limits import FASTEST_GBPS, LARGEST_BATCH, LARGEST_DEGREE, LARGEST_DEPTH, LARGEST_SIZE

WORDS = ("id", "source", "year", "model", "family", "gpu", "fsdp_kind", "precision", "recompute", "attention",
         "optimizer", "offload", "framework", "cp_mode", "flops_kind", "mem_kind", "finetune_kind",
         "lora_targets", "notes")  # fmt: skip
"""Columns of text."""
TIMES = ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s")
"""Columns that tell the time of a step; of a row that has several the first one counts."""
COLUMNS = (*WORDS, *COUNTS, *MEASURED, *FROM_ZERO, *FLAGS)
DELIMITERS = (";", "\t", "|")
"""What spreadsheets write where a comma is the decimal sign, and between copied cells."""
_NOTHING = "\"', \r\n" + "".join(DELIMITERS)
"""What the cells of an empty row are written with."""
LEAST_OF_ROW = 3
"""Delimiters by which a line within a cell is known for a row that an open quote has swallowed; prose has fewer."""
_END = "(end of the table)"
"""Is read behind the last line, as a row of its own unless a quote is open there."""
OF_THIS_RUN = "This run: "
"""How notes of a sweep begin what a run has of its own, behind what all of them have."""
MOST_TOLD = 3
"""Cells that are told of a first row which is no heading."""


class MissingCell(Exception):
    """A row does not say enough to be simulated; the message names the cell."""


@dataclass(frozen=True)
class Run:
    """One measured run. ``line`` is its line in the file, for messages; ``headings`` are those of the file that stand
    for a column of another name."""

    cells: dict[str, str]
    line: int
    headings: Mapping[str, str] = field(default_factory=dict)
    surplus: int = 0
    """Cells of the line beyond the last column."""

    @cached_property
    def told(self) -> dict[str, str]:
        """The text of each cell that is not blank: a replay asks a row for hundreds."""
        return {name: text for name, value in self.cells.items() if value is not None and (text := value.strip())}

    def text(self, name: str) -> str | None:
        """A cell's text, None when blank."""
        return self.told.get(name)

    def number(self, name: str) -> float | None:
        """A cell's number, None when blank or not a number."""
        text = self.told.get(name)
        return None if text is None else number_in(name, text)

    def positive(self, name: str) -> float | None:
        """A measured cell; nothing that was measured is zero or less, or beyond any size."""
        value = self.number(name)
        return value if value is not None and LEAST_MEASURED <= value <= MOST_MEASURED else None

    def count(self, name: str) -> int | None:
        """A whole positive number, None when blank."""
        value = self.number(name)
        return int(value) if value is not None and value >= 1 and value == int(value) else None

    def refuse_slips(self) -> None:
        """Raise MissingCell where a size is beyond any model, machine and batch: a typing slip."""
        bounds = {"layers": LARGEST_DEPTH, "global_batch": LARGEST_BATCH, "internode_gbps_per_gpu": FASTEST_GBPS,
                  "seq_len": LARGEST_SIZE, "decoder_seq": LARGEST_SIZE}  # fmt: skip
        for name in (*COUNTS, "ffn_hidden", "internode_gbps_per_gpu"):
            value, most = self.number(name), bounds.get(name, LARGEST_DEGREE)
            if value is not None and value > most:
                raise MissingCell(f"{name} {value:.3g} exceeds {most:,}: a typo?")

    def flag(self, name: str) -> bool | None:
        """A cell of yes or no."""
        value = self.number(name)
        return None if value is None else bool(value)

    def need(self, name: str) -> int:
        """A count that cannot be guessed."""
        value = self.count(name)
        if value is None:
            text = self.text(name)
            raise MissingCell(f"{name} is blank" if text is None else f"{name} {text[:20]!r} is not a count")
        return value

    @property
    def odd(self) -> list[str]:
        """Cells of numbers that hold none, or one that cannot be: they count as blank."""
        found = []
        for names, least, kind in (
            (COUNTS, 1, "whole number of at least 1"), (MEASURED, 0, "number above 0"),
            (FROM_ZERO, 0, "number of at least 0"), (FLAGS, 0, "yes or no"),
        ):  # fmt: skip
            for name in names:
                text, value = self.text(name), self.number(name)
                if text is None:
                    continue
                if value is None or value < least or (names is MEASURED and not self.positive(name)) or (
                    names is COUNTS and value != int(value)
                ):  # fmt: skip
                    slip = "measurable " if value and value > 0 and names is MEASURED else ""
                    article = "" if names is FLAGS else "a "
                    found.append(f"line {self.line}: {name} {text[:20]!r} is not {article}{slip}{kind}")
        return found

    @property
    def id(self) -> str:
        """The row's name, or its line."""
        return self.text("id") or f"line {self.line}"

    @cached_property
    def notes(self) -> str:
        """What the row says beside its cells; empty where it says nothing. What it says of this run in another place
        than of the one that it varies comes first, as readers of several runs believe the first."""
        told = self.text("notes") or ""
        base, marked, own = told.partition(OF_THIS_RUN)
        return f"{own}; {base}" if marked and base else told

    @property
    def source(self) -> str:
        """The source in short: its first word."""
        return (self.text("source") or "?").split(" ")[0]


def read_runs(path: Path) -> list[Run]:
    """All rows of a runs.csv (or .csv.gz); raises DistsimError when the file is no such table."""
    try:
        rows = _rows(io.StringIO(_text(path), newline=""), path)
    except OSError as error:
        raise DistsimError(f"cannot read the runs: {error.strerror or error}", where=str(path)) from None
    except UnicodeDecodeError:
        raise DistsimError("not a CSV table in UTF-8", "save it as CSV (UTF-8)", where=str(path)) from None
    except EOFError as error:
        raise DistsimError(f"not a CSV table: {error}", where=str(path)) from None
    if not rows:
        raise DistsimError("the table has no rows", where=str(path))
    return rows


def _text(path: Path) -> str:
    refuse_special(path)
    refuse_large(path)
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        raw = file.read()
    # spreadsheets put a mark before the first column's name, and write "Unicode text" in UTF-16
    return raw.decode("utf-16" if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig")


def _rows(file: io.StringIO, path: Path) -> list[Run]:
    """Rows that say something; lines of nothing above the headings do not, and one like ``sep=;`` is a spreadsheet's
    note to itself."""
    first, above = file.readline(), 0
    while first.startswith("sep=") or (first and not first.strip(_NOTHING)):
        first, above = file.readline(), above + 1
    delimiter = "," if "," in first else next((one for one in DELIMITERS if one in first), ",")
    lines = _lines(itertools.chain([first], file, [_END]), delimiter, above, path)
    names = ["_".join(name.lower().split()) for name in next(lines, ([], 0))[0]]
    columns = read_as(names, COLUMNS)
    headings = {heading: column.name for heading, column in columns.items()}
    _check_header([*names, *headings.values()], path)
    found: list[tuple[dict[str, str], int, int]] = []
    for texts, line in lines:
        cells = dict(zip(names, texts, strict=False))
        if any(map(str.strip, cells.values())):
            beyond = [place for place, text in enumerate(texts[len(names) :], 1) if text.strip()]
            found.append((cells, line, max(beyond, default=0)))
    named = [({**cells, **{headings[key]: cells[key] for key in headings if key in cells}}, line, surplus)
             for cells, line, surplus in found]  # fmt: skip
    marks = marks_of([cells for cells, *_ in named], delimiter)
    return [Run(in_units(plain_numbers(cells, marks), columns), line, headings, more) for cells, line, more in named]


def _lines(text: Iterable[str], delimiter: str, above: int, path: Path) -> Iterator[tuple[list[str], int]]:
    """The cells of each row with the line it ends on, up to the mark behind the last. Raises DistsimError where a quote
    is not closed, which makes one cell of what follows: of all, or up to the next quote."""
    reader, begins, most = csv.reader(text, delimiter=delimiter), above + 1, 0
    try:
        for cells in reader:
            if cells == [_END]:
                return
            most, line = most or len(cells) - 1, reader.line_num + above
            if cells and cells[-1].endswith(_END):
                raise DistsimError(
                    "a quote is not closed, so everything after it is one cell", where=f"{path}:{begins}"
                )
            if line > begins and most >= LEAST_OF_ROW and any(
                part.count(delimiter) == most for cell in cells if "\n" in cell for part in cell.splitlines()
            ):  # fmt: skip
                raise DistsimError("a quote is not closed: one cell holds whole lines", where=f"{path}:{begins}")
            yield cells, line
            begins = line + 1
    except csv.Error as error:
        open_quote = "is a quote not closed?" if "limit" in str(error) else ""
        raise DistsimError(f"not a CSV table: {error}", open_quote, where=f"{path}:{begins}") from None


def _check_header(header: list[str], path: Path) -> None:
    """A table of runs names its models, and each column once."""
    if not header:
        raise DistsimError("the file is empty", "see docs/runs.md for an example", where=str(path))
    if len(header) > 1 and not set(header) & set(COLUMNS):
        first = ", ".join(repr(name) for name in header[:MOST_TOLD])
        raise DistsimError(
            f"the first row has no known column of runs ({first}{', …' if len(header) > MOST_TOLD else ''})",
            "start with a header row, e.g. model,gpu,n_gpus,global_batch,step_time_s",
            "columns are listed in docs/runs.md; distsim show runs lists the shipped ones",
            where=str(path),
        )
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice:
        raise DistsimError(f"column {twice!r} appears twice", "keep one of them", where=str(path))
    if "model" not in header and "layers" not in header:
        raise DistsimError(
            "no column 'model' or 'layers': this is not a table of runs",
            "columns are listed in docs/runs.md; distsim show runs lists the shipped ones",
            where=str(path),
        )


def measured_step_seconds(run: Run, global_batch: int, seq: int, gpus: int) -> float | None:
    """Time of one optimizer step: as printed, or exactly converted from a throughput."""
    seconds, tokens, samples = map(run.positive, TIMES)
    if seconds:
        return seconds
    if tokens:
        return global_batch * seq / (tokens * gpus)
    return global_batch / samples if samples else None
