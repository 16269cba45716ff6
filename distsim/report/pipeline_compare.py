"""The table of all schedules side by side, with a spark-line of each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from distsim.engine.timelines.simulation import Pipeline
from distsim.report import gantt
from distsim.report.gantt import Line, Span, show_count, show_seconds, show_time
from distsim.report.pipeline_text import count, wrapped
from distsim.report.style import ASCII_LEVELS, LEVELS
from distsim.schedules.registry import SCHEDULES

_MOST_SPARK, _LEAST_SPARK = 40, 8
_FAR = 2.5  # schedules that take longer than this many times the best do not set the spark-lines' scale
_WIDE = 100


def comparison(
    reports: list[Pipeline],
    refused: list[tuple[str, str]],
    width: int | None,
    unicode: bool,
    about: Sequence[str] = (),
) -> list[Line]:
    """All schedules, best first; the spark-lines share one time scale and show how many stages are busy. ``about`` a
    model whose times in seconds these are."""
    spans = {one.schedule: (show_seconds if about else show_time)(one.makespan) for one in reports}
    names, times = max(map(len, spans)), max(len("makespan"), *map(len, spans.values()))
    wide = width is None or width >= _WIDE
    head = f"{'schedule':<{names}} chunks {'makespan':>{times}} bubble   span held"
    head += " until W versions" if wide else ""
    room = _MOST_SPARK if width is None else min(_MOST_SPARK, width - len(head) - 2)
    best = min(report.makespan for report in reports)
    longest = max(report.makespan for report in reports if report.makespan <= _FAR * best)
    lines: list[Line] = [
        [Span(f"{count(reports[0].stages, 'stage')}, {count(reports[0].micro, 'micro-batch')}, best first", "title")],
        *wrapped(about, width),
        [],
        [Span(head + _title(room), "label")],
    ]
    for report in reports:
        row = _row(report, wide)
        line = [Span(f"{report.schedule:<{names}} {report.chunks:>6} {spans[report.schedule]:>{times}} {row}")]
        if room >= _LEAST_SPARK:
            line.append(Span("  " + spark(report, room, longest, unicode), "forward"))
        lines.append(line)
    lines += [[], *([Span(text, "label")] for text in _notes(reports, wide))]
    if refused:
        lines += [[], [Span("cannot run here:", "label")]]
        lines += [[Span(text, "label")] for name, why in refused for text in _refusal(name, why, width)]
    return lines


def _refusal(name: str, why: str, width: int | None) -> list[str]:
    text = f"{name}: {why}"
    return textwrap.wrap(text, max(20, width or 4096), initial_indent="  ", subsequent_indent="    ")


def _title(room: int) -> str:
    return next((f"  {text}" for text in ("busy stages over time", "busy") if len(text) <= room), "")


def _row(report: Pipeline, wide: bool) -> str:
    text = (
        f"{100 * report.bubble_fraction:>5.1f}% {100 * abs(report.span_bubble_fraction):>5.1f}% "
        f"{show_count(max(report.peak_in_flight)):>4}"
    )
    if wide:
        text += f" {show_count(max(report.peak_until_weight_gradient)):>7} {max(report.weight_versions):>8}"
    return text


def _notes(reports: list[Pipeline], wide: bool) -> list[str]:
    notes = [
        "bubble: idle share of all stages' time; span: of the longest stage span only;",
        "held: most micro-batches in flight on a stage" + ("; until W: until their weight gradient;" if wide else "."),
    ]
    if wide:
        notes.append("versions: copies of its weights that a stage keeps for consistency.")
    both = [one.schedule for one in reports if SCHEDULES[one.schedule].placement == "bidirectional"]
    if both:
        notes.append(f"Every stage holds the weights of two stages under {' and '.join(both)}.")
    return notes


def spark(report: Pipeline, columns: int, longest: float, unicode: bool) -> str:
    """Busy stages over time, from none to all; a schedule that ends earlier has a shorter line, and one that runs far
    longer than the scale is cut off with a mark."""
    levels = LEVELS if unicode else ASCII_LEVELS
    bins = [0.0] * columns
    if not longest:
        return ""
    step = longest / columns
    for stage in range(report.stages):
        for _, start, end in gantt.events(report, stage):
            column = int(start / step)
            while start < end - 1e-12 * longest and column < columns:
                edge = min(end, (column + 1) * step)
                bins[column] += max(0.0, edge - start)
                start, column = max(start, edge), column + 1
    top = len(levels) - 1
    used = min(columns, int(report.makespan / step + 0.999))
    text = "".join(levels[max(1, round(top * one / (step * report.stages)))] for one in bins[:used])
    return text[:-1] + ("…" if unicode else ">") if report.makespan > longest * (1 + 1e-9) else text
