"""Files of a search: the ranked layouts as CSV, or every one as CSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distsim.cli.whole_file import LeftOutError, check_place, check_suffix, whole

if TYPE_CHECKING:
    from distsim.engine.layouts.report import Request, SearchReport

KINDS = (".csv", ".parquet")


def write_ranked(path: Path, report: SearchReport) -> None:
    """The ranked layouts, best first."""
    from distsim.engine.layouts.recomputed import selective_word
    from distsim.engine.layouts.rows import described

    names = [*described(bool(report.rents)), "mfu"]
    if report.request.tokens is not None:
        names += ["training_days", *(["usd"] if report.rents else [])]
    with whole(path) as scratch, open(scratch, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["rank", *names])
        for rank, one in enumerate(report.best, 1):
            step = one.report
            row = step.setup.to_dict() | report.told(one) | {"peak_memory_bytes": step.memory.peak}
            if step.setup.layout.selective:
                row["recompute"] = selective_word(step.setup)
            cells = (row[name] for name in names)
            writer.writerow([rank, *(int(cell) if isinstance(cell, bool) else cell for cell in cells)])


def check(path: Path | None, flag: str, kinds: tuple[str, ...] = KINDS) -> None:
    """The file can be written as what its name says; told before anything is computed."""
    if path is None:
        return
    check_suffix(path, flag, kinds)
    check_place(path, flag)
    if path.suffix.lower() == ".parquet":
        from distsim.engine.layouts.parquet import library

        library()


@contextlib.contextmanager
def every_layout(path: Path | None, request: Request) -> Iterator[Any]:
    """Takes each block of layouts into a file, whole or not at all; None where there is no path. Its ``dropped``
    leaves the file out."""
    if path is None:
        yield None
        return
    from distsim.engine.layouts.search import rents_of

    rents = rents_of(request)
    kind = ParquetLayouts if path.suffix.lower() == ".parquet" else CsvLayouts
    with whole(path) as scratch:
        layouts = kind(scratch, rents, request)
        try:
            yield layouts
        finally:
            layouts.close()
        if layouts.dropped:
            raise LeftOutError


class CsvLayouts:
    """Every layout as a line."""

    def __init__(self, path: Path, rents: Mapping[int, Any], request: Request) -> None:
        from distsim.engine.layouts.rows import described

        self.rents, self.dropped = rents, False
        self.file = io.TextIOWrapper(io.FileIO(path, "w"), "utf-8", newline="")
        self.writer = csv.writer(self.file, lineterminator="\n")
        self.writer.writerow(described(bool(rents)))

    def add(self, block: Any) -> None:
        """All layouts of a block."""
        from distsim.engine.layouts.rows import columns, rows

        self.writer.writerows(rows(columns(block, self.rents)))

    def close(self) -> None:
        """No more blocks come."""
        self.file.close()


class ParquetLayouts:
    """Every layout as a row of typed columns."""

    def __init__(self, path: Path, rents: Mapping[int, Any], request: Request) -> None:
        from distsim.engine.layouts.parquet import ParquetFile
        from distsim.engine.layouts.rows import described

        self.rents, self.dropped = rents, False
        job = {name: str(value) for name, value in request.job.model_dump(exclude_none=True).items() if name != "model"}
        model = request.job.model if isinstance(request.job.model, str) else request.job.model.name
        self.file = ParquetFile(path, described(bool(rents)), {"model": model, **job})

    def add(self, block: Any) -> None:
        """All layouts of a block."""
        from distsim.engine.layouts.rows import columns

        self.file.add(columns(block, self.rents))

    def close(self) -> None:
        """No more blocks come."""
        self.file.close()
