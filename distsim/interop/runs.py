"""Measured runs: one row of runs.csv as typed cells; unknown columns are ignored, blank cells are None."""

from __future__ import annotations

import csv
import gzip
import math
from dataclasses import dataclass
from pathlib import Path

from distsim.errors import DistsimError
from distsim.units import GIB

GB = 1e9  # XLA's decimal gigabyte


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
        return int(value) if value is not None and value >= 1 else None

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
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else open(path, newline="") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or []
            if "model" not in header and "layers" not in header:
                raise DistsimError(
                    "no column 'model' or 'layers': this is not a table of runs",
                    "columns are listed in docs/runs.md; distsim show runs lists the shipped ones",
                    where=str(path),
                )
            rows = [
                Run(
                    {key: value for key, value in row.items() if isinstance(key, str) and isinstance(value, str)},
                    reader.line_num,
                )
                for row in reader
            ]
    except OSError as error:
        raise DistsimError(f"cannot read the runs: {error.strerror or error}", where=str(path)) from None
    except (UnicodeDecodeError, csv.Error, EOFError) as error:
        raise DistsimError(f"not a CSV table: {error}", where=str(path)) from None
    if not rows:
        raise DistsimError("the table has no rows", where=str(path))
    return rows


def measured_step_seconds(run: Run, global_batch: int, seq: int, gpus: int) -> float | None:
    """Time of one optimizer step: as printed, or exactly converted from a throughput."""
    seconds, tokens, samples = map(run.positive, ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s"))
    if seconds:
        return seconds
    if tokens:
        return global_batch * seq / (tokens * gpus)
    return global_batch / samples if samples else None


def measured_peak_bytes(run: Run, decimal: bool = False) -> float | None:
    """Peak memory per GPU in bytes; ``decimal`` where the framework prints gigabytes of 1e9 bytes.

    torch's counters and nvidia-smi print binary units, whatever letters follow the number; only XLA's and those whose
    notes say so are decimal.
    """
    value = run.positive("mem_peak_gb_per_gpu")
    if not value:
        return None
    kind = (run.text("mem_kind") or "").lower()
    decimal = decimal or "allocated gb" in kind or "allocated, gb" in kind
    return value * (GB if decimal else GIB)
