"""Notes on a table of measured runs: what of it cannot be read as it stands, and how it is read instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distsim.interop.runs.columns import meant
from distsim.interop.runs.table import COLUMNS, TIMES, Run

MOST_LINES = 4
"""Lines of an id that are named."""


def _said_counts(run: Run) -> str:
    return run.text("flops_kind") or ""


def odd_cells(runs: Sequence[Run], most: int = 5, counts: Callable[[Run], str] = _said_counts) -> list[str]:
    """A note on each column that is nearly one that is read, and on each of the first cells that hold no number where
    one is expected, and how many there are, on rates of which nothing ``counts`` what they are, on rows with more cells
    than columns, and on names of several rows."""
    return [*(_odd_columns(runs[0]) if runs else ()), *_odd_numbers(runs, most), *_uncounted_rates(runs, counts),
            *_surplus(runs), *_same_names(runs)]  # fmt: skip


def _surplus(runs: Sequence[Run]) -> list[str]:
    """A note where rows have more cells than the heading names."""
    wide = [run for run in runs if run.surplus]
    if not wide:
        return []
    more = f" and {len(wide) - 1} more" if len(wide) > 1 else ""
    cells = f"{wide[0].surplus} cell{'s' if wide[0].surplus > 1 else ''}"
    return [f"line {wide[0].line}{more}: {cells} more than the heading has, not read; quote a cell that holds a comma"]


def _same_names(runs: Sequence[Run]) -> list[str]:
    """A note where rows share an id: what was pasted twice would count twice in the errors."""
    lines: dict[str, list[int]] = {}
    for run in runs:
        if name := run.text("id"):
            lines.setdefault(name, []).append(run.line)
    shared = {name: places for name, places in lines.items() if len(places) > 1}
    if not shared:
        return []
    name, places = next(iter(shared.items()))
    rest = len(shared) - 1
    more = f", and {rest} more id{'s'[: rest != 1]} on several" if rest else ""
    told = ", ".join(map(str, places[:MOST_LINES])) + (", …" if len(places) > MOST_LINES else "")
    return [
        f"id {name[:20]!r} is on lines {told}{more}: pasted twice? "
        "Errors count every row, distsim calibrate each setting once"
    ]


def _uncounted_rates(runs: Sequence[Run], counts: Callable[[Run], str]) -> list[str]:
    """A note where rows give a rate of FLOPs and nothing else, and do not say which FLOPs."""
    others = (*TIMES, "mfu_pct", "hfu_pct")
    lines = [
        run.line for run in runs
        if run.positive("tflops_per_gpu_reported") and not (any(map(run.positive, others)) or counts(run))
    ]  # fmt: skip
    if not lines:
        return []
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    rate = "a rate of FLOPs without a flops_kind that is understood (model or hardware)"
    return [f"line {lines[0]}{more}: {rate} gives no step time"]


def _odd_columns(run: Run) -> list[str]:
    import difflib

    given, known = set(run.cells), set(COLUMNS)
    lacking = sorted(known - given)
    renamed = [f"column {heading!r} is read as {name}" for heading, name in run.headings.items()]
    others = sorted(given - known - set(run.headings))
    near = {name: meant(name) or ", ".join(difflib.get_close_matches(name, lacking, 1, 0.85)) for name in others}
    return renamed + [f"column {name!r} is not read; did you mean {found}?" for name, found in near.items() if found]


def _odd_numbers(runs: Sequence[Run], most: int) -> list[str]:
    found = [words for run in runs for words in run.odd]
    if not found:
        return []
    left = len(found) - most
    rest = [f"{left} more {'cell is' if left == 1 else 'cells are'} invalid"] if left > 0 else []
    return [f"{words}: treated as blank" for words in found[:most]] + rest
