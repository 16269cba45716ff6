"""Files of a search: the ranked layouts as CSV, or every one as CSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import io
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distsim.cli.whole_file import LeftOutError, check_place, check_suffix, whole
from distsim.errors import DistsimError
from distsim.report import talk
from distsim.units import GIB, decimal_bytes

if TYPE_CHECKING:
    from distsim.engine.layouts.report import Request, SearchReport

KINDS = (".csv", ".parquet")
LARGE = GIB
"""Bytes from which on a file's size is told before it is written."""


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
        layouts = kind(path, scratch, rents, request)
        try:
            yield layouts
        finally:
            layouts.close()
        if layouts.dropped:
            raise LeftOutError


class EveryLayout:
    """A file of every layout, whose size is known from its first rows on."""

    def __init__(self, path: Path, scratch: Path, rents: Mapping[int, Any]) -> None:
        self.path, self.scratch, self.rents, self.dropped, self.told = path, scratch, rents, False, False

    def rows_written(self) -> int:
        """Rows that are in the file."""
        raise NotImplementedError

    def foretell(self, layouts: int) -> None:
        """Tell once how large the file will be for so many layouts; raise where its drive has no room for it."""
        rows = 0 if self.told else self.rows_written()
        if not rows:
            return
        self.told, written = True, self.scratch.stat().st_size
        size = written / rows * layouts
        free = shutil.disk_usage(self.scratch.parent).free
        smaller = "" if self.path.suffix.lower() == ".parquet" else "; named .parquet it has a fifth of that"
        if size - written > free:
            raise DistsimError(
                f"{self.path} would have about {decimal_bytes(size)} for {layouts:,} layouts, "
                f"and its drive has {decimal_bytes(free)} left",
                f"search fewer layouts (--tp 1..8, --vpp 1){smaller}",
            )
        if size >= LARGE:
            talk.note(f"{self.path} will have about {decimal_bytes(size)} for {layouts:,} layouts{smaller}")


def watching(show: Callable[[int, int], None], every: EveryLayout | None) -> Callable[[int, int], None]:
    """What tells how many of how many layouts are done, and how large a file of them all will be."""

    def watch(done: int, whole: int) -> None:
        show(done, whole)
        if every is not None:
            every.foretell(whole)

    return watch


class CsvLayouts(EveryLayout):
    """Every layout as a line."""

    def __init__(self, path: Path, scratch: Path, rents: Mapping[int, Any], request: Request) -> None:
        from distsim.engine.layouts.rows import described

        super().__init__(path, scratch, rents)
        self.rows = 0
        self.file = io.TextIOWrapper(io.FileIO(scratch, "w"), "utf-8", newline="")
        self.writer = csv.writer(self.file, lineterminator="\n")
        self.writer.writerow(described(bool(rents)))

    def add(self, block: Any) -> None:
        """All layouts of a block."""
        from distsim.engine.layouts.rows import columns, rows

        made = columns(block, self.rents)
        self.writer.writerows(rows(made))
        self.rows += len(made["seconds"])

    def rows_written(self) -> int:
        """Rows that are in the file."""
        self.file.flush()
        return self.rows

    def close(self) -> None:
        """No more blocks come."""
        self.file.close()


class ParquetLayouts(EveryLayout):
    """Every layout as a row of typed columns."""

    def __init__(self, path: Path, scratch: Path, rents: Mapping[int, Any], request: Request) -> None:
        from distsim.engine.layouts.parquet import ParquetFile
        from distsim.engine.layouts.rows import described

        super().__init__(path, scratch, rents)
        job = {name: str(value) for name, value in request.job.model_dump(exclude_none=True).items() if name != "model"}
        model = request.job.model if isinstance(request.job.model, str) else request.job.model.name
        self.file = ParquetFile(scratch, described(bool(rents)), {"model": model, **job})

    def add(self, block: Any) -> None:
        """All layouts of a block."""
        from distsim.engine.layouts.rows import columns

        self.file.add(columns(block, self.rents))

    def rows_written(self) -> int:
        """Rows that are in the file."""
        return self.file.written

    def close(self) -> None:
        """No more blocks come."""
        self.file.close()
