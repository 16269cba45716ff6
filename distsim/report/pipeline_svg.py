"""A schedule as an SVG drawing: one bar per action, stages down, time across; reads without colour by its pattern of
shades and the micro-batch numbers."""

from __future__ import annotations

from xml.sax.saxutils import escape

from distsim.engine.timelines.simulation import Pipeline
from distsim.errors import DistsimError
from distsim.report import gantt
from distsim.report.gantt import show_time

_FILL = {
    "F": ("#56b4e9", "#b3dcf5"),
    "B": ("#e69f00", "#f5d38a"),
    "I": ("#d55e00", "#f0a878"),
    "W": ("#999999", "#d0d0d0"),
    "FB": ("#cc79a7", "#e6bcd3"),
    "O": ("#009e73", "#009e73"),
}
_LEFT, _TOP, _ROW, _BAR, _AXIS = 64, 44, 24, 20, 40
_MOST_WIDTH, _NARROWEST, _DIGIT = 2400.0, 18.0, 7.0
MOST_BARS = 200_000


def draw(report: Pipeline) -> str:
    """The SVG document. Numbers are left out of bars that are too narrow for them."""
    bars = sum(map(len, report.parts.orders))
    if bars > MOST_BARS:
        raise DistsimError(f"{bars:,} actions are too many for one drawing", f"draw at most {MOST_BARS:,}")
    lengths = [end - start for _, start, end in gantt.events(report, 0) if end > start]
    shortest = min(lengths, default=report.makespan or 1.0)
    width = min(_MOST_WIDTH, max(320.0, report.makespan / shortest * _NARROWEST))
    unit = width / (report.makespan or 1.0)
    height = _TOP + _ROW * report.stages + _AXIS
    title = (
        f"{report.schedule}, {report.stages} stages, {report.micro} micro-batches: makespan "
        f"{show_time(report.makespan)}, bubble {100 * report.bubble_fraction:.1f}%"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + width + 24:.0f}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        '<rect class="paper" width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="13">{escape(title)}</text>',
    ]
    for stage in range(report.stages):
        parts += _row(report, stage, unit, width)
    parts += _axis(report, unit, height)
    return "\n".join([*parts, "</svg>", ""])


def _row(report: Pipeline, stage: int, unit: float, width: float) -> list[str]:
    y = _TOP + _ROW * stage
    parts = [
        f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">stage {stage}</text>',
        f'<rect x="{_LEFT}" y="{y}" width="{width:.2f}" height="{_BAR}" class="idle" fill="#f4f4f4"/>',
    ]
    for action, start, end in gantt.events(report, stage):
        x, w = _LEFT + start * unit, (end - start) * unit
        fill = _FILL[action[0]][gantt.shade(report, action[1])]
        name = gantt.label(action)
        hint = f"{action[0]} of micro-batch {name}, chunk {action[1]}: {show_time(start)} to {show_time(end)}"
        parts.append(
            f'<rect class="bar" x="{x:.2f}" y="{y}" width="{w:.2f}" height="{_BAR}" fill="{fill}" stroke="white" '
            f'stroke-width="0.5"><title>{escape(hint)}</title></rect>'
        )
        if name and w >= _DIGIT * len(name) + 3:
            place = f'class="on-light" x="{x + w / 2:.2f}" y="{y + 14}" text-anchor="middle"'
            parts.append(f"<text {place}>{escape(name)}</text>")
    return parts


def _axis(report: Pipeline, unit: float, height: int) -> list[str]:
    y = height - _AXIS + 4
    step = gantt.tick_step(report.makespan, int(report.makespan * unit / 6))
    parts = [f'<path d="M{_LEFT} {y}h{report.makespan * unit:.2f}" class="axis" stroke="black"/>']
    for i in range(int(report.makespan / step + 1e-9) + 1):
        x = _LEFT + i * step * unit
        parts.append(f'<path d="M{x:.2f} {y}v5" class="axis" stroke="black"/>')
        parts.append(f'<text x="{x:.2f}" y="{y + 18}" text-anchor="middle">{show_time(i * step)}</text>')
    return parts
