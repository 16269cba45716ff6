"""What ``distsim pipeline`` prints around the chart: a headline, labels, a legend, figures, and the comparison."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distsim.engine.timelines.partition import Partition
from distsim.engine.timelines.simulation import Pipeline
from distsim.formulas.schedule_forms import FORMS, SPLIT_FORMS, Form, Setting
from distsim.report import gantt
from distsim.report.gantt import Line, Span, show_count, show_seconds, show_time
from distsim.report.terminal import NATURAL_WIDTH
from distsim.schedules.registry import SCHEDULES
from distsim.schedules.repeats import short
from distsim.units import duration

if TYPE_CHECKING:
    from distsim.engine.jobs.resolve import Setup

Show = Callable[[float], str]

_FULL = 0.5  # an exact chart that fills less of the width gives way to one that fills it
_MEANING = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
    "FB": "forward and backward in one block",
    "O": "optimizer step",
}


def page(report: Pipeline, width: int | None, unicode: bool = True, about: Sequence[str] = ()) -> list[Line]:
    """Headline, chart with labels and axis, legend and figures; ``about`` a model whose times in seconds these are."""
    show = show_seconds if about else show_time
    lines: list[Line] = [[Span(text, "title" if i == 0 else "")] for i, text in enumerate(headline(report))]
    return [*lines, *wrapped(about, width), [], *labelled(report, width, unicode, show), [], *figures(report, show)]


def wrapped(texts: Sequence[str], width: int | None, style: str = "") -> list[Line]:
    """Texts as lines that are no longer than the terminal is wide."""
    each = (textwrap.wrap(text, width or NATURAL_WIDTH, break_on_hyphens=False) for text in texts)
    return [[Span(line, style)] for lines in each for line in lines]


def model_words(setup: Setup, times: Mapping[str, Any], stages: int, schedule: str | None = None) -> list[str]:
    """Lines that name the model, and the times of a stage or chunk under a schedule: of the slowest where they
    differ."""
    from distsim.report.job_words import further_words, trained_words

    layout = setup.layout
    software = ", ".join([setup.precision.name, setup.framework.name, *further_words(setup), *trained_words(setup)])
    experts = ("ep", "etp") if layout.ep > 1 else ()
    degrees = "".join(
        f", {name} {getattr(layout, name)}" for name in ("tp", "cp", *experts) if getattr(layout, name) > 1
    )
    passes = (times["forward"], times["backward"])
    forward, backward = (duration(max(one)) for one in passes)
    alike = all(max(one) - min(one) <= 1e-6 * max(one) for one in passes)
    waits = _launches(setup, times, schedule)
    which = ("each " if alike else "slowest ") + ("stage" if len(passes[0]) == stages else "chunk")
    return [
        f"{setup.model.name} on {setup.gpu_words}{degrees}, "
        f"{layout.micro_batch} x {layout.seq:,} tokens per micro-batch, {software}",
        f"{which}: forward {forward}, backward {backward}{waits}; {_transfer(setup, times['hop'])}",
    ]


def _launches(setup: Setup, times: Mapping[str, Any], schedule: str | None) -> str:
    """How much of the passes is the host's pace, not the GPU's, if enough to matter."""
    from distsim.engine.steps.pass_times import launch_waits
    from distsim.report.step import HOST_SHARE

    waits = launch_waits(setup, times, schedule)
    if sum(waits) < HOST_SHARE * (max(times["forward"]) + max(times["backward"])):
        return ""
    forward, backward = map(duration, waits)
    return f" (of it {forward} and {backward} waiting for the host's kernel launches)"


def _transfer(setup: Setup, hop: float | list[float]) -> str:
    """How long a transfer takes, and over which links where one replica needs no others: those of many may lie across
    them; where only some of its hops do, both."""
    cluster, gpus = setup.cluster, setup.layout.gpus
    place = "node" if gpus <= cluster.gpus_per_node or cluster.domain == cluster.gpus_per_node else "domain"
    if isinstance(hop, list):
        return f"transfer {duration(min(hop))} within a {place}, {duration(max(hop))} between {place}s"
    return f"transfer {duration(hop)}{f' within a {place}' if gpus <= cluster.domain else ''}"


def headline(report: Pipeline) -> list[str]:
    """What is shown and its main figures, each line short enough for a narrow terminal."""
    chunks = f", {report.chunks} chunks per stage" if report.chunks > 1 else ""
    kind = SCHEDULES.get(report.schedule)
    about = f": {kind.title}" if kind else ""
    return [
        f"{report.schedule}{about}",
        f"{count(report.stages, 'stage')}, {count(report.micro, 'micro-batch')}{chunks}",
    ]


def count(number: int, what: str) -> str:
    """``1 stage``, ``8 micro-batches``."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{'' if number == 1 else plural}"


def labelled(report: Pipeline, width: int | None, unicode: bool, show: Show = show_time) -> list[Line]:
    """The chart with stage numbers on the left, idle share and peak on the right, the axis and the legend below."""
    left = len(str(report.stages - 1))
    peaks = [show_count(peak) for peak in report.peak_in_flight]
    held = max(len("held"), *map(len, peaks))
    right = len("|idle ") + held
    wide = width is None or width - left - 1 - right >= 10
    columns = None if width is None else max(4, width - left - 1 - (right if wide else 0))
    at = gantt.scale(report, columns)
    if width is not None and columns is not None and wide:
        alone = gantt.scale(report, width - left - 1)
        larger = at.merged or alone.columns > 1.5 * at.columns
        if not alone.merged and larger:  # rather clear actions than the figures at the side
            at, wide = alone, False
        elif not at.merged and at.columns < _FULL * columns:
            at = gantt.filling(report, columns)
    bar = "│" if unicode else "|"
    over = at.columns + left + 2 - len("stage")
    head = "stage" + (" " * max(1, over) + f"idle {'held':>{held}}" if wide else "")
    lines: list[Line] = [[Span(head, "label")]]
    shown = gantt.shown_stages(report.stages)
    for stage, spans in zip(shown, gantt.chart(report, at, unicode), strict=True):
        line = [Span(f"{stage:>{left}}{bar}", "label"), *spans]
        if wide:
            share = 100 * report.idle[stage] / report.makespan if report.makespan else 0.0
            line.append(Span(f"{bar}{share:>3.0f}% {peaks[stage]:>{held}}", "label"))
        lines.append(line)
    lines += [[Span(" " * left + text, "label")] for text in gantt.axis(report, at, unicode, show)]
    lines.append([])
    lines += _legend(report, at, width, unicode, show)
    if len(shown) < report.stages:
        lines.append([Span(f"{len(shown)} of {report.stages} stages are shown, evenly spaced.", "label")])
    return lines


def _legend(report: Pipeline, at: gantt.Scale, width: int | None, unicode: bool, show: Show) -> list[Line]:
    fills = gantt.glyphs(unicode)
    present = {action[0] for order in report.parts.orders for action in short(order)}
    kinds = [kind for kind in _MEANING if kind in present or (kind == "O" and report.optimizer)]
    several = len(report.parts.placement) > report.stages
    items = []
    for kind in kinds:
        fill = fills[kind][0]
        other = f" {fills[kind][1] * 3}" if several and kind != "O" else ""
        if kind == "I" and "B" in present:
            continue
        meaning = "backward or its input gradient" if kind == "B" and "I" in present else _MEANING[kind]
        items.append([Span(fill * 3 + other, gantt.STYLES[kind]), Span(f" {meaning}")])
    items.append([Span("blank idle")])
    lines = _wrap(items, width)
    if several:
        what = "the two directions" if len(report.parts.chains) > 1 else "alternate chunks of a stage"
        lines.append([Span(f"The two shades mark {what}.", "label")])
    step = f"1 column = {show(float(f'{1 / at.per_second:.3g}'))}"
    if at.merged:
        meaning = (
            "each shows what takes most of it; remainders carry over, so that blank columns add up to the idle time."
        )
        lines += wrapped([f"{step}, longer than an action; {meaning}"], width, "label")
    else:
        lines.append([Span(f"Numbers are micro-batches, where they fit; {step}.", "label")])
    return lines


def _wrap(items: list[Line], width: int | None) -> list[Line]:
    lines: list[Line] = [[]]
    used = 0
    for item in items:
        length = sum(len(span.text) for span in item)
        if lines[-1] and width is not None and used + 3 + length > width:
            lines.append([])
            used = 0
        if lines[-1]:
            lines[-1].append(Span("   "))
            used += 3
        lines[-1] += item
        used += length
    return lines


def figures(report: Pipeline, show: Show = show_time) -> list[Line]:
    """The numbers under the chart, one per line, with what they mean."""
    busiest = max(range(report.stages), key=lambda stage: report.peak_in_flight[stage])
    rows = [
        ("makespan", show(report.makespan), closed_form(report, show)),
        ("bubble", percent(report.bubble_fraction), "idle share of all stages' time"),
        ("span bubble", percent(report.span_bubble_fraction), "idle share of the longest stage span"),
        ("efficiency", percent(report.efficiency), "busy share of all stages' time"),
        ("peak in flight", show_count(max(report.peak_in_flight)), f"micro-batches held by stage {busiest}"),
    ]
    weights = max(report.peak_until_weight_gradient)
    if weights != max(report.peak_in_flight):
        rows.append(("", show_count(weights), "counted until the weight gradient"))
    if max(report.weight_versions) > 1:
        rows.append(("weights", str(max(report.weight_versions)), "most versions kept by any stage"))
    values = max(len(value) for _, value, _ in rows)
    return [[Span(f"{name:<15}"), Span(f"{value:>{values}}", "figure"), Span(f"  {why}".rstrip(), "label")]
            for name, value, why in rows]  # fmt: skip


def partition(parts: Partition) -> list[Line]:
    """Which layers each part of the model got."""
    lines: list[Line] = [[], [Span("layers per part  " + " ".join(map(str, parts.sizes)))]]
    what = "slowest device  " if len(set(parts.devices)) < len(parts.sizes) else "slowest part    "
    proof = "" if parts.proven else "; perhaps not optimal"
    told = f"{what} {show_time(parts.slowest)}, {percent(parts.imbalance)} above the mean{proof}"
    return [*lines, [Span(told)]]


def percent(fraction: float) -> str:
    """A share in per cent with one decimal; never a negative zero."""
    return f"{abs(fraction) * 100 if abs(fraction) < 5e-4 else fraction * 100:.1f}%"


def closed_form(report: Pipeline, show: Show = show_time) -> str:
    """The closed form's makespan next to the simulated one, where there is one for these times; closed forms treat
    transfers as pure delays."""
    form, costs, transfers = _form(report), report.costs, report.transfers
    lists = (costs.forward, costs.backward, costs.input_gradient, costs.weight_gradient)
    uneven = any(max(one) - min(one) > 1e-12 * max(one) for one in lists) or isinstance(transfers.hops, list)
    waits = bool(transfers.hops) and (transfers.rendezvous or transfers.blocking or transfers.exclusive)
    if form is None or report.optimizer or uneven or waits:
        return ""
    forward, backward, first, second = (one[0] * report.chunks for one in lists)
    halves = (first, second) if SCHEDULES[report.schedule].splits else (backward / 2, backward / 2)
    setting = Setting(report.stages, report.micro, report.chunks, forward, *halves, transfers.hops)
    value = form.makespan(setting)
    if not form.exact(setting) or abs(value - report.makespan) > 1e-9 * max(1.0, report.makespan):
        return f"closed form {show(value)}, not exact here"
    return f"closed form {show(value)}"


def _form(report: Pipeline) -> Form | None:
    """The closed form for how fused pairs run; none where they take a time of their own."""
    if report.costs.fused is not None:
        return None
    paired = any(action[0] == "FB" for order in report.parts.orders for action in short(order))
    return FORMS.get(report.schedule) if paired else SPLIT_FORMS.get(report.schedule, FORMS.get(report.schedule))
