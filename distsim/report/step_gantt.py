"""One step as lines of text: the stages of the pipeline, and the streams of one stage, each a row across the time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from distsim.engine.steps.passes import STREAMS, Segment
from distsim.engine.steps.timeline import StepTimeline
from distsim.report.gantt import Cell, Line, Scale, Shares, Span, most_owed, ruler, shown_stages, spans, spread
from distsim.units import HOUR, MINUTE, duration, stated

NATURAL_COLUMNS = 100
LEAST_COLUMNS = 20
WIDEST_TEXT = 120
FIGURES = 20
"""Columns of the two numbers to the right of a chart."""
NOTICED = 5e-4
"""Shares of the step below this are not worth a remark."""
MANY = 200_000
"""Segments from which on the rows of stages are drawn pass by pass."""
UNICODE, ASCII = "─█▓▒◆▞·~", "-#r+ox.~"
CELLS = ("forward", "backward", "recompute", "weight", "optimizer", "exposed", "hidden", "other")
MEANINGS = ("forward", "backward", "recomputation", "weight gradient", "optimizer",
            "exposed communication", "overlapped communication", "stalls, jitter, fixed time per step")  # fmt: skip
NAMES = {"compute": "compute", "tp": "tensor", "cp": "context", "ep": "expert", "dp": "data", "pp": "pipeline",
         "offload": "offload", "other": "other"}  # fmt: skip


Repeated = tuple[Segment, int, float]
"""A segment, how many times it comes, and the seconds from one to the next."""


class View(NamedTuple):
    """A drawing to make: from when to when, the streams of which stage, in how many columns and which characters."""

    begin: float
    end: float
    stage: int
    columns: int
    unicode: bool

    @property
    def scale(self) -> Scale:
        """Columns per second."""
        return Scale(self.columns, self.columns / (self.end - self.begin), True)


def page(step: StepTimeline, window: tuple[float, float], stage: int, width: int | None, unicode: bool) -> list[Line]:
    """Title, the stages of a pipeline, the streams of one stage, ruler and legend."""
    label = max(len(name) for name in NAMES.values())
    room = (width or NATURAL_COLUMNS + label + FIGURES) - label - 2 - FIGURES
    wide = room >= LEAST_COLUMNS
    view = View(*window, stage, room if wide else max(4, room + FIGURES), unicode)
    lines = wrapped(title(step, view), "title", width)
    seen: set[str] = set()
    if step.run.stages > 1:
        lines += [[], head("stage", "busy", "idle", view, label, wide)]
        lines += [stage_row(step, one, view, label, wide, seen) for one in shown_stages(step.run.stages)]
    lines += [[], head(f"streams of stage {stage}", "busy", "exposed", view, label, wide)]
    lines += stream_rows(step, view, label, wide, seen)
    lines += [[Span(" " * label + text, "label")] for text in clock(view)]
    return [*lines, [], *legend(view, seen, width), *remarks(step, view, width)]


def clock(view: View) -> tuple[str, str]:
    """The ruler, with ticks at round numbers of the window's unit."""
    span = view.end - view.begin
    unit = HOUR if span >= 2 * HOUR else MINUTE if span >= 2 * MINUTE else 1.0
    at = view.scale._replace(per_second=view.scale.per_second * unit)
    corner = ("└", "─", "┴") if view.unicode else ("+", "-", "+")
    return ruler((view.begin / unit, view.end / unit), at, lambda time: moment(time * unit), corner)


def moment(seconds: float) -> str:
    """A time on the ruler."""
    return stated(duration(seconds)) if seconds else "0"


def title(step: StepTimeline, view: View) -> list[str]:
    """The line above a drawing: what it shows."""
    run = step.run
    shape = f"{run.stages} stages, {run.schedule}" if run.stages > 1 else "one stage"
    micro = f"{run.micro} micro-batch{'' if run.micro == 1 else 'es'}"
    part = view.end - view.begin < step.seconds * (1 - 1e-9)
    shown = [f"drawn from {moment(view.begin)} to {stated(duration(view.end))}"] if part else []
    return ["; ".join([f"Step timeline: {duration(step.seconds)}", f"{shape}, {micro}", *shown])]


def wrapped(texts: list[str], style: str, width: int | None) -> list[Line]:
    """Sentences on as many lines as they need."""
    import textwrap

    return [[Span(line, style)] for text in texts for line in textwrap.wrap(text, width or WIDEST_TEXT)]


def head(left: str, first: str, second: str, view: View, label: int, wide: bool) -> Line:
    """Titles of the rows and of their figures."""
    text = left.ljust(label + 1 + view.columns)
    return [Span(text + figures(first, second) if wide else left, "label")]


def figures(first: str, second: str) -> str:
    """Two numbers right of a row."""
    return f" {first:>9} {second:>8}"


def stage_row(step: StepTimeline, stage: int, view: View, label: int, wide: bool, seen: set[str]) -> Line:
    """What a stage is busy with; blank where it idles."""
    found = list(_path(step, stage, view))
    cells = _numbered(step, stage, view, drawn(found, view, seen))
    made = [Span(f"{stage:>{label}}{_bar(view)}", "label"), *spans(cells)]
    if wide:
        busy = _busy(step, stage)
        made.append(Span(_bar(view) + figures(duration(busy), f"{1 - busy / step.seconds:.0%}"), "label"))
    return made


def _path(step: StepTimeline, stage: int, view: View) -> Iterable[Repeated]:
    """Segments that the stage waits for; pass by pass where there are very many."""
    passes = step.part_of(stage).passes
    each = sum(len(track.segments) for chunk in passes for track in chunk.values()) / len(passes)
    if each * step.run.micro * step.run.chunks < MANY // step.run.stages:
        return ((one, 1, 0.0) for one in step.segments(stage, view.begin, view.end) if one.exposed)
    names = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}
    found = [(Segment("compute", names[one.kind], "", one.begin, one.end), one.times, one.apart)
             for one in step.told(stage)]  # fmt: skip
    every = [*found, *((one, 1, 0.0) for one in _after(step, stage))]
    return [one for one in every if _shown(one, view)]


def _after(step: StepTimeline, stage: int) -> list[Segment]:
    """What a stage waits for after its last pass."""
    last = max(one.last for one in step.told(stage))
    return [one for one in step.after(stage) if one.exposed and one.end > last and one.start < step.seconds]


def _busy(step: StepTimeline, stage: int) -> float:
    """Seconds for which a stage is not idle."""
    passes = sum((one.end - one.begin) * one.times for one in step.told(stage))
    return passes + sum(one.end - one.start for one in _after(step, stage))


def _numbered(step: StepTimeline, stage: int, view: View, cells: list[Cell]) -> list[Cell]:
    """The micro-batch's number where a pass has room for it."""
    per_second = view.scale.per_second
    passes = (told for told in step.told(stage) if (told.end - told.begin) * per_second > 0.5)
    for one in (told.turn(turn) for told in passes for turn in range(*told.turns(view.begin, view.end))):
        first, last = round((one.begin - view.begin) * per_second), round((one.end - view.begin) * per_second)
        text = str(one.micro)
        if first >= 0 and last <= view.columns and last - first > len(text):
            for offset, character in enumerate(text):
                cells[first + offset] = (cells[first + offset][0], character)
    return cells


def stream_rows(step: StepTimeline, view: View, label: int, wide: bool, seen: set[str]) -> list[Line]:
    """Every stream of the stage that has work to do."""
    lanes: dict[str, list[Repeated]] = {name: [] for name in STREAMS}
    for repeated in step.repeated(view.stage):
        lanes[repeated[0].stream].append(repeated)
    lines = []
    for name, segments in lanes.items():
        if not segments:
            continue
        shown = [one for one in segments if _shown(one, view)]
        line = [Span(f"{NAMES[name]:>{label}}{_bar(view)}", "label"), *spans(drawn(shown, view, seen))]
        if wide:
            busy = sum((one.end - one.start) * times for one, times, _ in segments)
            exposed = sum((one.end - one.start) * times for one, times, _ in segments if one.exposed)
            second = "" if name == "compute" else duration(exposed) if exposed else "0"
            line.append(Span(_bar(view) + figures(duration(busy), second), "label"))
        lines.append(line)
    return lines


def _shown(repeated: Repeated, view: View) -> bool:
    """Whether any time of it is in the window, or between two that are at either side."""
    one, times, apart = repeated
    return one.end + (times - 1) * apart > view.begin and one.start < view.end


def drawn(segments: Iterable[Repeated], view: View, seen: set[str]) -> list[Cell]:
    """Columns of one row; ``seen`` collects the styles for the legend."""
    shares: Shares = {}
    fills = dict(zip(CELLS, UNICODE if view.unicode else ASCII, strict=True))
    for one, times, apart in segments:
        style = style_of(one)
        seen.add(style)
        start, end = one.start - view.begin, one.end - view.begin
        if times == 1:
            start, end = max(start, 0.0), min(end, view.end - view.begin)
        spread(shares, (style, fills[style]), start, end, view.scale, times, apart)
    return most_owed(shares, view.scale, present=True)


def style_of(segment: Segment) -> str:
    """How a segment is drawn."""
    if segment.stream == "compute":
        return segment.kind
    if segment.stream == "other":
        return "other"
    return "exposed" if segment.exposed else "hidden"


def _bar(view: View) -> str:
    return "│" if view.unicode else "|"


def legend(view: View, seen: set[str], width: int | None) -> list[Line]:
    """The characters that occur, as few lines as hold them."""
    lines: list[Line] = [[]]
    used = 0
    for style, fill, meaning in zip(CELLS, UNICODE if view.unicode else ASCII, MEANINGS, strict=True):
        if style not in seen:
            continue
        item = [Span(fill * 3, style), Span(f" {meaning}")]
        length = 4 + len(meaning)
        if lines[-1] and used + 3 + length > (width or WIDEST_TEXT):
            lines.append([])
            used = 0
        if lines[-1]:
            item.insert(0, Span("   "))
            length += 3
        lines[-1] += item
        used += length
    return lines


def remarks(step: StepTimeline, view: View, width: int | None) -> list[Line]:
    """How fine the chart is, and by how much it differs from the composition of the step time."""
    column = duration((view.end - view.begin) / view.columns)
    told = [f"1 column = {column} and shows what takes most of it (remainders carry over)."]
    if step.slack > NOTICED * step.seconds:
        told.append(
            f"The step time counts {duration(step.slack)} more for the pipeline than these passes take:"
            " idle before the last part."
        )
    elif step.slack < -NOTICED * step.seconds:
        shared = step.report.setup.layout.vocab_parallel
        what = "passes without vocabulary parallelism" if shared else "equal stages and chunks"
        told.append(
            f"The step time assumes the bubble of {step.run.schedule} for {what};"
            f" with these passes it would be {duration(-step.slack)} longer, so they are drawn"
            f" {1 - step.squeeze:.1%} shorter."
        )
    return wrapped(told, "label", width)
