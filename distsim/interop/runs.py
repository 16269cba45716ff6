"""Measured runs: one row of runs.csv as typed cells; unknown columns are ignored, blank cells are None."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from distsim.errors import DistsimError
from distsim.units import GIB, GIGA

DECIMAL = ("QwenLM/",)
"""Sources that print decimal gigabytes: QwenLM/Qwen's table has 81.0 on cards of 80 GiB, and read as GiB all of it is
7% above what 44 runs need (docs/findings.md)."""
COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "n_experts", "top_k", "moe_ffn_hidden",
          "seq_len", "n_gpus", "gpus_per_node", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro_batch", "grad_accum",
          "global_batch", "lora_rank")  # fmt: skip
"""Columns of whole numbers from one on."""
MEASURED = ("n_params_b", "ffn_hidden", "internode_gbps_per_gpu", "gpu_power", "step_time_s", "tokens_per_s_per_gpu",
            "samples_per_s", "tflops_per_gpu_reported", "mfu_pct", "hfu_pct", "mem_peak_gb_per_gpu")  # fmt: skip
"""Columns of figures above zero."""
FROM_ZERO = ("shared_experts", "zero_stage", "gated_mlp", "tied_embeddings", "sequence_parallel", "compile")
WORDS = ("id", "source", "year", "model", "family", "gpu", "fsdp_kind", "precision", "recompute", "attention",
         "optimizer", "offload", "framework", "cp_mode", "flops_kind", "mem_kind", "finetune_kind",
         "lora_targets", "notes")  # fmt: skip
"""Columns of text."""
DELIMITERS = (";", "\t", "|")
"""What spreadsheets write where a comma is the decimal sign, and between copied cells."""
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_POINTS = re.compile(r"-?\d{1,3}(\.\d{3})+(,\d+)?")
"""Thousands where commas are decimal."""
_POINT = re.compile(r"-?\d+\.(\d{1,2}|\d{4,})")
"""A decimal point that separates no thousands."""


class MissingCell(Exception):
    """A row does not say enough to be simulated; the message names the cell."""


@dataclass(frozen=True)
class Run:
    """One measured run. ``line`` is its line in the file, for messages."""

    cells: dict[str, str]
    line: int

    def text(self, name: str) -> str | None:
        """A cell's text, None when blank."""
        value = self.cells.get(name)
        return value.strip() or None if value is not None else None

    def number(self, name: str) -> float | None:
        """A cell's number, None when blank or not a number."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    def positive(self, name: str) -> float | None:
        """A measured cell; nothing that was measured is zero or less."""
        value = self.number(name)
        return value if value is not None and value > 0 else None

    def count(self, name: str) -> int | None:
        """A whole positive number, None when blank."""
        value = self.number(name)
        return int(value) if value is not None and value >= 1 and value == int(value) else None

    def flag(self, name: str) -> bool | None:
        """A 0/1 cell."""
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
            (COUNTS, 1, "whole number from 1 on"), (MEASURED, 0, "number above 0"), (FROM_ZERO, 0, "number from 0 on"),
        ):  # fmt: skip
            for name in names:
                text, value = self.text(name), self.number(name)
                if text is None:
                    continue
                if value is None or value < least or (names is MEASURED and not value) or (
                    names is COUNTS and value != int(value)
                ):  # fmt: skip
                    found.append(f"line {self.line}: {name} {text[:20]!r} is no {kind}")
        return found

    @property
    def id(self) -> str:
        """The row's name, or its line."""
        return self.text("id") or f"line {self.line}"

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
    except (csv.Error, EOFError) as error:
        raise DistsimError(f"not a CSV table: {error}", where=str(path)) from None
    if not rows:
        raise DistsimError("the table has no rows", where=str(path))
    return rows


def _text(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        raw = file.read()
    # spreadsheets put a mark before the first column's name, and write "Unicode text" in UTF-16
    return raw.decode("utf-16" if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig")


def _rows(file: io.StringIO, path: Path) -> list[Run]:
    """Rows that say something; a first line like ``sep=;`` is a spreadsheet's note to itself."""
    first, above = file.readline(), 0
    if first.startswith("sep="):
        first, above = file.readline(), 1
    delimiter = "," if "," in first else next((one for one in DELIMITERS if one in first), ",")
    reader = csv.DictReader(itertools.chain([first], file), delimiter=delimiter)
    reader.fieldnames = ["_".join(name.lower().split()) for name in reader.fieldnames or []]
    _check_header(reader.fieldnames, path)
    found = []
    for row in reader:
        cells = {key: value for key, value in row.items() if isinstance(key, str) and isinstance(value, str)}
        if any(map(str.strip, cells.values())):
            found.append((cells, reader.line_num + above))
    marks = _marks([cells for cells, _ in found], delimiter)
    return [Run(_plain_numbers(cells, marks), line) for cells, line in found]


class _Marks(NamedTuple):
    """What marks in a table's numbers mean: else commas are between thousands, and points before decimals."""

    decimal_commas: bool
    thousand_points: bool


def _marks(rows: Sequence[dict[str, str]], delimiter: str) -> _Marks:
    """A comma stands before decimals where a number tells it, as 1,42 does, which is no thousand, or 5.762,3; and
    between semicolons, which spreadsheets write where it does, unless points do. A point stands between thousands only
    beside such commas."""
    texts = [row.get(name, "").strip() for row in rows for name in (*MEASURED, *COUNTS)]
    told = any(
        (_DECIMAL_COMMA.fullmatch(text) and not _THOUSANDS.fullmatch(text)) or (_POINTS.fullmatch(text) and "," in text)
        for text in texts
    )
    points = any(_POINT.fullmatch(text) for text in texts)
    if delimiter == ",":
        return _Marks(False, False)
    return _Marks(told or (delimiter == ";" and not points), told and not points)


def _plain_numbers(cells: dict[str, str], marks: _Marks) -> dict[str, str]:
    """Cells whose numbers are written as spreadsheets do: 1,42 or 5.762 where commas are decimal, 6,900, 40%."""
    for name in (*MEASURED, *COUNTS):
        text = cells.get(name, "").strip()
        if marks.thousand_points and _POINTS.fullmatch(text):
            cells[name] = text.replace(".", "").replace(",", ".")
        elif marks.decimal_commas and _DECIMAL_COMMA.fullmatch(text):
            cells[name] = text.replace(",", ".")
        elif not marks.decimal_commas and _THOUSANDS.fullmatch(text):
            cells[name] = text.replace(",", "")
        elif text.endswith("%") and name.endswith("_pct"):
            cells[name] = text[:-1]
    return cells


def _check_header(header: list[str], path: Path) -> None:
    """A table of runs names its models, and each column once."""
    if not header:
        raise DistsimError("the file is empty", "docs/runs.md has an example", where=str(path))
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice:
        raise DistsimError(f"column {twice!r} stands twice", "leave one out: which of them counts?", where=str(path))
    if "model" not in header and "layers" not in header:
        raise DistsimError(
            "no column 'model' or 'layers': this is not a table of runs",
            "columns are listed in docs/runs.md; distsim show runs lists the shipped ones",
            where=str(path),
        )


def odd_cells(runs: Sequence[Run], most: int = 5) -> list[str]:
    """A note on each column that is nearly one that is read, and on each of the first cells that hold no number where
    one is expected, and how many there are, and on rates that cannot be compared."""
    return [*_odd_columns(runs[0].cells if runs else {}), *_odd_numbers(runs, most), *_uncounted_rates(runs)]


def _uncounted_rates(runs: Sequence[Run]) -> list[str]:
    """A note where rows give a rate of FLOPs and nothing else, and do not say which FLOPs."""
    times = ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s")
    rates = ("tflops_per_gpu_reported", "mfu_pct", "hfu_pct")
    lines = [
        run.line for run in runs
        if any(map(run.positive, rates)) and not any(map(run.positive, times)) and not run.text("flops_kind")
    ]  # fmt: skip
    if not lines:
        return []
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return [f"line {lines[0]}{more}: a rate of FLOPs without flops_kind (model or hardware) gives no step time"]


def _odd_columns(header: Iterable[str]) -> list[str]:
    import difflib

    given, known = set(header), {*WORDS, *COUNTS, *MEASURED, *FROM_ZERO}
    lacking = sorted(known - given)
    near = {name: difflib.get_close_matches(name, lacking, 1, 0.85) for name in sorted(given - known)}
    return [f"column {name!r} is not read; did you mean {found[0]}?" for name, found in near.items() if found]


def _odd_numbers(runs: Sequence[Run], most: int) -> list[str]:
    found = [words for run in runs for words in run.odd]
    if not found:
        return []
    rest = [f"{len(found) - most} more cells hold no such number"] if len(found) > most else []
    return [f"{words}: taken as blank" for words in found[:most]] + rest


def measured_step_seconds(run: Run, global_batch: int, seq: int, gpus: int) -> float | None:
    """Time of one optimizer step: as printed, or exactly converted from a throughput."""
    seconds, tokens, samples = map(run.positive, ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s"))
    if seconds:
        return seconds
    if tokens:
        return global_batch * seq / (tokens * gpus)
    return global_batch / samples if samples else None


def measured_peak_bytes(run: Run, decimal: bool = False) -> float | None:
    """Peak memory per GPU in bytes; ``decimal`` where the framework prints decimal gigabytes.

    torch's counters and nvidia-smi print binary units, whatever letters follow the number; only XLA's, those whose
    notes say so and those of ``DECIMAL`` are decimal.
    """
    value = run.positive("mem_peak_gb_per_gpu")
    if not value:
        return None
    kind = (run.text("mem_kind") or "").lower()
    decimal = decimal or "allocated gb" in kind or "allocated, gb" in kind or run.source.startswith(DECIMAL)
    return value * (GIGA if decimal else GIB)
