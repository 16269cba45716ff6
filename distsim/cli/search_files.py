"""CSV files of a search: the ranked layouts, or every one."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distsim.errors import DistsimError

if TYPE_CHECKING:
    from distsim.engine.search import SearchReport

COLUMNS = ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "zero_group", "micro_batch", "micro_batches",
           "recompute", "recompute_layers", "sequence_parallel", "schedule")  # fmt: skip
ANSWERS = ("seconds", "peak_memory_bytes")


def write_ranked(path: Path, report: SearchReport) -> None:
    """The ranked layouts, best first."""
    check(path)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["rank", *COLUMNS, *ANSWERS, "tokens_per_second", "mfu"])
        for rank, one in enumerate(report.best, 1):
            row = one.report.setup.to_dict()
            cells = [int(row[name]) if isinstance(row[name], bool) else row[name] for name in COLUMNS]
            step = one.report
            writer.writerow([rank, *cells, step.seconds, step.memory.peak, step.tokens_per_second, step.mfu])


def check(path: Path) -> None:
    """Only CSV is written."""
    if path.suffix.lower() != ".csv":
        raise DistsimError(f"{path} is not a CSV file", f"name it {path.with_suffix('.csv')}")


class AllLayouts:
    """Every layout as it is evaluated; a context that writes nothing where there is no path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.file: Any = None

    def __enter__(self) -> AllLayouts:
        if self.path is not None:
            check(self.path)
            self.file = open(self.path, "w", newline="", encoding="utf-8")
            csv.writer(self.file, lineterminator="\n").writerow([*COLUMNS, *ANSWERS])
        return self

    def __exit__(self, *problem: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, block: Any) -> None:
        """All layouts of a block."""
        from distsim.engine.search_rows import rows

        csv.writer(self.file, lineterminator="\n").writerows(rows(block, COLUMNS))
