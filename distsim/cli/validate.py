"""``distsim validate``: predictions compared with measured runs."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from distsim.cli.signatures import option
from distsim.cli.workers import UsualJobs, processes
from distsim.report import talk


def _median_option(flag: str, what: str) -> Any:
    text = f"exit 1 when the median {what} is above this, e.g. 0.05 or 5%"
    return option(flag, text)


Runs = Annotated[Path | None, typer.Argument(help="your own runs.csv [default: the shipped runs]", show_default=False)]
_UNSEEN = "replay the shipped runs whose sources were never fitted to, each as if its source had no others"
Unseen = Annotated[bool, typer.Option("--unseen", help=_UNSEEN)]
By = Annotated[str | None, option("--by", "also summarise by source, gpu, framework or model")]
Worst = Annotated[int, typer.Option("--worst", help="number of worst rows to list")]
MemoryMedian = Annotated[str | None, _median_option("--memory-median", "peak-memory error")]
Median = Annotated[str | None, _median_option("--median", "step-time error")]
Json = Annotated[bool, typer.Option("--json", help="print JSON to stdout")]


def validate(
    runs: Runs = None, unseen: Unseen = False, by: By = None, worst: Worst = 10, memory_median: MemoryMedian = None,
    median: Median = None, jobs: UsualJobs = None, json: Json = False,
) -> None:  # fmt: skip
    """Replay measured runs and compare predicted with measured step time and peak memory.

    A row is skipped only when its cells do not say enough to simulate it; the reason names the cell.

    Example: distsim validate mine.csv --by framework
    """
    from distsim.cli.progress import shown
    from distsim.engine.validate import ENOUGH, check_group, shipped_runs, unseen_runs, validate_file
    from distsim.errors import DistsimError

    if by is not None:
        check_group(by)
    bars = _bar("--median", median), _bar("--memory-median", memory_median)
    if worst < 0:
        raise DistsimError(f"--worst {worst} is negative", "give 0 or more")
    if unseen and runs is not None:
        raise DistsimError("RUNS and --unseen exclude each other", "validate them one at a time")
    path = runs if runs is not None else unseen_runs() if unseen else shipped_runs()
    with shown("runs") as show_done, processes(jobs, ENOUGH) as workers:
        result = validate_file(path, show_done, workers)
    for words in result.odd:
        talk.note(words)
    if json:
        print(jsonlib.dumps(result.to_dict(by)))
    else:
        from distsim.report.validate import show

        show(result, by, worst)
    told = result.summary
    reached = (("--median", median, bars[0], told.median_abs_error, "step-time error", "step time"),
               ("--memory-median", memory_median, bars[1], told.memory_median_abs_error, "peak-memory error",
                "peak memory"))  # fmt: skip
    failed = [words for one in reached if (words := _failed(*one))]
    for words in failed:
        talk.note(words)
    if failed:
        raise typer.Exit(1)


def _failed(flag: str, stated: str | None, bar: float | None, median: float | None, error: str, figure: str) -> str:
    """How a median error is above its bar, in words; nothing where it is not, or where none was asked for."""
    if bar is None or (median is not None and median <= bar):
        return ""
    if median is None:
        return f"{flag} {stated} fails: no replayed row has a measured {figure}"
    return f"{flag} {stated} fails: the median {error} is {median:.2%}, {(median - bar) * 100:.2f} points above"


def _bar(flag: str, stated: str | None) -> float | None:
    """An error as a fraction; ``5%`` is 0.05. A bare 5 is a slip; whoever wants a bar of 500%
    says so."""
    from distsim.errors import DistsimError
    from distsim.units import parse, per_cent_meant

    if stated is None:
        return None
    try:
        bar = parse(stated, "1", flag)
    except DistsimError:
        bar = -1.0
    if bar < 0 or (bar >= 1 and "%" not in stated):
        slip = per_cent_meant(stated)
        raise DistsimError(
            f"{flag} {stated} is not a valid error", slip, "give a share below 1, or per cent: 0.05 or 5%"
        )
    return bar
