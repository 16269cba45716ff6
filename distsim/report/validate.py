"""The tables and the scatter plot of ``distsim validate``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from distsim.engine.evidence import Replay
from distsim.engine.validate import Summary, Validation
from distsim.report.console import console, table
from distsim.units import duration, gib

ENOUGH_TO_PLOT = 3
PLOT_COLUMNS, PLOT_LINES = 56, 18
MOST_REMARKS = 12


def percent(value: float | None, signed: bool = False) -> str:
    """A share as a percentage, a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:+.1%}" if signed else f"{value:.1%}"


def show(result: Validation, by: str | None, worst: int) -> None:
    """Print summary, groups, worst rows, skipped rows and the plot."""
    out = console()
    summary = result.summary
    groups = result.by(by) if by else {}
    timed = [one for one in result.replays if one.error is not None]
    if timed:
        _show_times(result, groups, by, worst, timed)
    else:
        out.print("No row that could be replayed has a measured step time.\n")
    out.print(_summaries("peak memory, predicted against measured", {"all runs": summary}))
    if by:
        out.print()
        out.print(_summaries(f"by {by}", {name: one for name, one in groups.items() if one.memory_rows}))
    measured = [one for one in result.replays if one.memory_error is not None]
    if worst and measured:
        out.print()
        out.print(_worst("worst rows", [(one, one.memory_error or 0) for one in measured], _told_peaks, worst))
    points = [(one.measured_peak or 0, one.predicted_peak or 0) for one in measured]
    if len(points) >= ENOUGH_TO_PLOT:
        out.print()
        out.print(scatter(points), markup=False)
    for title, said in (
        ("assumed", [words for one in result.replays for words in one.assumed.split("; ")]),
        ("skipped", [one.reason for one in result.replays]),
    ):
        told = Counter(words for words in said if words)
        if told:
            out.print()
            out.print(_counted(title, told))


def _counted(title: str, told: Counter[str]) -> object:
    """How many rows share each remark, the most frequent first."""
    rows = table("rows", "why", numbers=("rows",), title=title)
    for words, count in told.most_common(MOST_REMARKS):
        rows.add_row(str(count), words)
    rest = sum(told.values()) - sum(count for _, count in told.most_common(MOST_REMARKS))
    if rest:
        rows.add_row(str(rest), "other reasons")
    return rows


def _show_times(
    result: Validation, groups: dict[str, Summary], by: str | None, worst: int, timed: list[Replay]
) -> None:
    """Step times: summary, groups, worst rows and the plot."""
    out = console()
    out.print(_times("step time, predicted against measured", {"all runs": result.summary}))
    if by:
        out.print()
        known = {name: one for name, one in groups.items() if one.median_abs_error is not None}
        out.print(_times(f"step time by {by}", known))
    if worst:
        out.print()
        out.print(_worst("worst step times", [(one, one.error or 0) for one in timed], _told_seconds, worst))
    points = [(one.measured_seconds or 0, one.predicted_seconds or 0) for one in timed]
    if len(points) >= ENOUGH_TO_PLOT:
        out.print()
        out.print(scatter(points, "step time", duration), markup=False)
    out.print()


def _summaries(title: str, summaries: dict[str, Summary]) -> object:
    columns = ("rows", "skipped", "with memory", "median error", "90th percentile", "bias")
    rows = table("", *columns, title=title, numbers=columns)
    for name, one in summaries.items():
        rows.add_row(
            name, str(one.rows), str(one.skipped), str(one.memory_rows), percent(one.memory_median_abs_error),
            percent(one.memory_p90_abs_error), percent(one.memory_bias, signed=True),
        )  # fmt: skip
    return rows


def _times(title: str, summaries: dict[str, Summary]) -> object:
    columns = ("timed", "skipped", "median error", "90th percentile", "bias", "in 90% interval")
    rows = table("", *columns, title=title, numbers=columns)
    for name, one in summaries.items():
        rows.add_row(
            name, str(one.timed_rows), str(one.skipped), percent(one.median_abs_error), percent(one.p90_abs_error),
            percent(one.bias, signed=True), percent(one.interval_coverage),
        )  # fmt: skip
    return rows


def _worst(
    title: str, rows: list[tuple[Replay, float]], told: Callable[[Replay], tuple[str, str]], count: int
) -> object:
    """The runs with the largest errors; ``told`` writes what was measured and what was predicted."""
    found = table("run", "model", "GPU", "measured", "predicted", "error", title=title,
                  numbers=("measured", "predicted", "error"))  # fmt: skip
    for one, error in sorted(rows, key=lambda row: -abs(row[1]))[:count]:
        named = (one.run.id, (one.run.text("model") or "?")[:40], one.run.text("gpu") or "?")
        found.add_row(*named, *told(one), percent(error, signed=True))
    return found


def _told_seconds(one: Replay) -> tuple[str, str]:
    return duration(one.measured_seconds or 0), duration(one.predicted_seconds or 0)


def _told_peaks(one: Replay) -> tuple[str, str]:
    return gib(one.measured_peak or 0, 1), gib(one.predicted_peak or 0, 1)


def scatter(points: list[tuple[float, float]], what: str = "peak memory", told: Callable[[float], str] = gib) -> str:
    """Measured across, predicted up, both logarithmic; on the diagonal they agree; digits count runs in a cell."""
    low = min(min(pair) for pair in points)
    high = max(max(pair) for pair in points)
    span = math.log(high / low) or 1.0

    def cell(value: float, size: int) -> int:
        return min(size - 1, int(math.log(value / low) / span * size))

    grid: dict[tuple[int, int], int] = Counter((cell(x, PLOT_COLUMNS), cell(y, PLOT_LINES)) for x, y in points)
    lines = []
    for line in reversed(range(PLOT_LINES)):
        text = ""
        for column in range(PLOT_COLUMNS):
            count = grid.get((column, line), 0)
            on_diagonal = column * PLOT_LINES // PLOT_COLUMNS == line
            text += ("." if on_diagonal else " ") if not count else str(count) if count < 10 else "#"
        lines.append(f"  |{text}")
    axis = f"  +{'-' * PLOT_COLUMNS}"
    left, right = told(low), told(high)
    scale = f"   {left}{right:>{PLOT_COLUMNS - len(left)}}"
    head = f"predicted (up) against measured (across) {what}; 1-9 runs, # ten or more; dots: equal"
    return "\n".join([head, *lines, axis, scale])
