"""The tables and the scatter plot of ``distsim validate``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from distsim.engine.evidence import Replay
from distsim.engine.ranking import Ranking
from distsim.engine.single_changes import LARGE_GAIN, Kept, summed
from distsim.engine.validate import Summary, Validation
from distsim.report.console import console, table
from distsim.units import duration, gib

ENOUGH_TO_PLOT = 3
PLOT_COLUMNS, PLOT_LINES = 56, 18
MOST_REMARKS = 12
WIDEST_NAME = 28
"""Columns of names that are not broken."""
NARROW = 72
"""Columns of a terminal below which the worst runs do not name their GPUs."""
LARGE = 1e3
"""Errors from here on are printed in scientific notation: a unit is wrong there, and the digits mean nothing."""
GAP = 3
"""Blanks between two columns of a table."""
DISPENSABLE = ("skipped", "in 90% interval", "90th percentile")
"""Columns that are dropped, in this order, until the table fits the terminal."""


def percent(value: float | None, signed: bool = False) -> str:
    """A share as a percentage, a dash where there is none."""
    if value is None:
        return "-"
    if abs(value) >= LARGE:
        return f"{100 * value:{'+' if signed else ''}.1e}%"
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
        out.print("No replayed row has a measured step time.\n")
    out.print(summaries_table("peak memory, predicted against measured", {"all runs": summary}))
    if by:
        out.print()
        out.print(
            summaries_table(f"peak memory by {by}", {name: one for name, one in groups.items() if one.memory_rows})
        )
    measured = [one for one in result.replays if one.memory_error is not None]
    if worst and measured:
        out.print()
        out.print(_worst("worst memory peaks", [(one, one.memory_error or 0) for one in measured], _told_peaks, worst))
    points = [(one.measured_peak or 0, one.predicted_peak or 0) for one in measured]
    if len(points) >= ENOUGH_TO_PLOT:
        out.print()
        out.print(scatter(points), markup=False)
    for title, heading, said in (
        ("assumed", "assumption", [(words, one) for one in result.replays for words in one.assumed.split("; ")]),
        ("skipped", "reason", [(one.reason, one) for one in result.replays]),
    ):
        told = [(words, one.run.id) for words, one in said if words]
        if told:
            out.print()
            out.print(_counted(title, heading, told))


def _counted(title: str, heading: str, told: list[tuple[str, str]]) -> object:
    """How many rows share each remark and the first of them, the most frequent remark first."""
    rows = table("rows", "first", heading, numbers=("rows",), whole=("rows", "first"), title=title)
    counts, first = Counter(words for words, _ in told), dict(reversed(told))
    for words, count in counts.most_common(MOST_REMARKS):
        rows.add_row(str(count), first[words][:WIDEST_NAME], words)
    if rest := len(told) - sum(count for _, count in counts.most_common(MOST_REMARKS)):
        rows.add_row(str(rest), "", f"other {heading}s")
    return rows


def ranking_words(told: Ranking) -> str:
    """How well layouts are ranked, in two sentences."""
    return (
        f"{told.jobs} {'job was' if told.jobs == 1 else 'jobs were'} measured in several layouts ({told.runs:,} runs); "
        f"Kendall's tau between predicted and measured order is {told.pairs_tau:.2f}. The layout predicted to be "
        f"fastest takes {percent(told.regret_median)} longer than the fastest one in the median, "
        f"{percent(told.regret_p90)} at the 90th percentile."
    )


def changes_words(told: Kept) -> str:
    """How predicted gains compare with measured ones, in a sentence or two."""
    large, small = told.large, told.pairs - told.large
    words = [
        f"{told.pairs:,} {'pair of runs differs' if told.pairs == 1 else 'pairs of runs differ'} in one setting only."
    ]
    if told.large_faster is not None:
        words.append(
            f"Of the {large:,} with a predicted gain of {LARGE_GAIN:.0%} or more, {told.large_faster:.0%} were faster "
            f"(median gain {percent(told.large_promised or 0)} predicted, {percent(told.large_kept or 0)} measured)."
        )
    if told.small_faster is not None:
        words.append(f"Of the {small:,} with a smaller predicted gain, {told.small_faster:.0%} were faster.")
    return " ".join(words)


def _show_times(
    result: Validation, groups: dict[str, Summary], by: str | None, worst: int, timed: list[Replay]
) -> None:
    """Step times: summary, groups, worst rows and the plot."""
    out = console()
    out.print(times_table("step time, predicted against measured", {"all runs": result.summary}))
    if by:
        out.print()
        known = {name: one for name, one in groups.items() if one.median_abs_error is not None}
        out.print(times_table(f"step time by {by}", known))
    if result.ranking:
        out.print()
        out.print(ranking_words(result.ranking), markup=False, highlight=False)
    if result.gains:
        out.print()
        out.print(changes_words(summed(result.gains)), markup=False, highlight=False)
    if worst:
        out.print()
        out.print(_worst("worst step times", [(one, one.error or 0) for one in timed], _told_seconds, worst))
    points = [(one.measured_seconds or 0, one.predicted_seconds or 0) for one in timed]
    if len(points) >= ENOUGH_TO_PLOT:
        out.print()
        out.print(scatter(points, "step time", duration), markup=False)
    out.print()


def summaries_table(title: str, summaries: dict[str, Summary]) -> object:
    return _scores(title, {
        name: {
            "rows": str(one.rows), "skipped": str(one.skipped), "with memory": str(one.memory_rows),
            "median error": percent(one.memory_median_abs_error), "90th percentile": percent(one.memory_p90_abs_error),
            "bias": percent(one.memory_bias, signed=True),
        } for name, one in summaries.items()
    })  # fmt: skip


def times_table(title: str, summaries: dict[str, Summary]) -> object:
    return _scores(title, {
        name: {
            "timed": str(one.timed_rows), "skipped": str(one.skipped), "median error": percent(one.median_abs_error),
            "90th percentile": percent(one.p90_abs_error), "bias": percent(one.bias, signed=True),
            "in 90% interval": percent(one.interval_coverage),
        } for name, one in summaries.items()
    })  # fmt: skip


def _scores(title: str, scores: dict[str, dict[str, str]]) -> object:
    """Names and their figures; a narrow terminal gets fewer figures, not broken words."""
    shown = list(next(iter(scores.values()), {}))
    longest = max(map(len, scores), default=0)
    words = {one: [*one.split(), *(row[one] for row in scores.values())] for one in shown}
    for spare in DISPENSABLE:
        wide = min(longest, WIDEST_NAME) + sum(max(map(len, words[one])) + GAP for one in shown)
        if wide > console().width and spare in shown:
            shown.remove(spare)
    wide = longest + sum(max(map(len, (one, *words[one]))) + GAP for one in shown)
    heads = [one if wide <= console().width else "\n".join(one.rsplit(" ", 1)) for one in shown]
    made = table("", *heads, title=title, numbers=tuple(heads), whole=("", *heads) if longest <= WIDEST_NAME else heads)
    for name, row in scores.items():
        made.add_row(name, *(row[one] for one in shown))
    return made


def _worst(
    title: str, rows: list[tuple[Replay, float]], told: Callable[[Replay], tuple[str, str]], count: int
) -> object:
    """The runs with the largest errors; ``told`` writes what was measured and what was predicted."""
    figures, gpu = ("measured", "predicted", "error"), ("GPU",) if console().width >= NARROW else ()
    found = table("run", "model", *gpu, *figures, title=title, numbers=figures, whole=("run", *gpu, *figures))
    for one, error in sorted(rows, key=lambda row: -abs(row[1]))[:count]:
        named = [one.run.id, (one.run.text("model") or "?")[:40], *([one.run.text("gpu") or "?"] if gpu else [])]
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
    head = f"{what}, predicted (y) against measured (x); 1-9: runs, #: 10+, .: equal"
    return "\n".join([head, *lines, axis, scale])
