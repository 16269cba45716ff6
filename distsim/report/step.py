"""The answer of ``distsim step`` as lines of text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distsim.engine.advice.faster import Faster
from distsim.engine.footprint.peak_error import TIGHT
from distsim.engine.jobs.flops import attention_words, products_words
from distsim.engine.jobs.resolve import Setup
from distsim.engine.steps.compose import PARTS
from distsim.engine.steps.report import StepReport
from distsim.report.flag_tables import flag_table
from distsim.report.job_words import batch_words, job_lines
from distsim.report.prose import folded
from distsim.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Colour, Style, bare, columns
from distsim.report.usual_length import shorter_lines
from distsim.specs.flags import to_type, typed
from distsim.units import decimal_bytes, duration, duration_like, gib

INKS: dict[str, tuple[str, Colour]] = {
    "compute": ("C", BLUE), "recompute": ("R", SKY), "tensor_parallel": ("T", ORANGE),
    "context_parallel": ("X", YELLOW),
    "expert_parallel": ("E", PURPLE), "data_parallel": ("D", GREEN), "pipeline_bubble": ("B", VERMILLION),
    "pipeline_transfer": ("P", YELLOW), "optimizer": ("O", PURPLE), "offload": ("L", SKY), "other": ("-", SKY),
}  # fmt: skip
WIDEST_BAR = 96
HOST_SHARE = 0.05
"""Share of a step spent waiting for the host, from which it is reported."""
PART_SHARE = 0.01
"""Share of a step that a part must have of that to say so."""
MANY_GPUS = 64
"""GPUs from which on layouts far from the job's own are pointed to: eight nodes of eight, where each degree can be
several numbers. Assumed."""


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "-" if value is None else f"{value:.1%}"


def lines(report: StepReport, quicker: Sequence[Faster], term: Style) -> list[str]:
    """The job, the time with its interval, rates, the breakdown and what would be faster."""
    made = [*job_lines(report.setup, term), "", *figures(report, term), "", *breakdown(report, term), ""]
    made += shorter_lines(report.memory, term)
    return [*made, *quicker_lines(report, quicker, term), *searched(report.setup, term)]


def figures(report: StepReport, term: Style) -> list[str]:
    """Time, throughput, utilisation, memory."""
    layout, interval = report.setup.layout, report.interval
    span = f"90% interval {_span((interval.low, interval.high), report.seconds, term)}"
    if interval.half is not None:
        half, most = (_span(ends, report.seconds, term) for ends in (interval.half, (interval.low, interval.high)))
        span = f"50% interval {half}, 90% {most}"
    each = report.tokens_per_second_per_gpu
    images = report.tokens_per_second / layout.seq if report.setup.model.patches else 0
    rate = decimal_bytes(report.model_flops_per_second_per_gpu, "FLOP/s")
    fits = "fits" if report.memory.headroom >= 0 else term.ink("does not fit", VERMILLION)
    counted = " + ".join(filter(None, (products_words(report.setup), attention_words(report.setup))))
    counted += ", and the vision tower's" if report.setup.model.shown_tower else ""
    tokens = "encoder tokens/s" if report.setup.model.encoder_layers else "tokens/s"
    return [
        *_beside(
            f"step time   {term.bold(duration(report.seconds))}   {span}", ", ",
            f"from {interval.basis}", term,
        ),
        *_beside(
            f"throughput  {report.tokens_per_second:,.0f} {tokens}, {each:,.0f} per GPU", "; ",
            f"{rate} per GPU in model FLOPs", term,
        ),
        *([f"images      {images:,.0f} images/s, {images / layout.gpus:,.0f} per GPU"] if images else []),
        *_beside(
            f"utilisation MFU {percent(report.mfu)}, HFU {percent(report.hfu)}{_of_peak(report)}", " ",
            f"({counted})", term,
        ),
        *_host_wait(report),
        *_doubted(f"peak memory {gib(report.memory.peak)} of {gib(report.memory.capacity)}", fits, report, term),
        *_host_memory(report, term),
    ]  # fmt: skip


def _of_peak(report: StepReport) -> str:
    """The rate that utilisation is a share of."""
    return f" of {decimal_bytes(report.peak, 'FLOP/s')}" if report.peak else ""


def _span(ends: tuple[float, float], seconds: float, term: Style) -> str:
    """Both ends of an interval in the unit of the time between them."""
    low, high = (duration_like(end, seconds) for end in ends)
    return f"{low} {term.choose('–', 'to')} {high}"


def _host_wait(report: StepReport) -> list[str]:
    """How long the GPU waits for the host, if long enough to matter."""
    share = report.host_wait_seconds / report.seconds
    if share < HOST_SHARE:
        return []
    return [f"host        the GPU waits {duration(report.host_wait_seconds)} ({share:.0%}) for kernel launches"]


def _host_memory(report: StepReport, term: Style) -> list[str]:
    """How much of a node's memory offloading needs."""
    if not report.setup.offload:
        return []
    from distsim.report.host_memory import host_lines

    return host_lines(report.memory, term)


def _doubted(peak: str, fits: str, report: StepReport, term: Style) -> list[str]:
    """Whether a job fits, and how sure that is where it barely does."""
    known = report.memory.known
    if not report.memory.fits or known.fitting >= TIGHT:
        return [f"{peak}: {fits}"]
    return _beside(
        f"{peak}: barely {fits}", ": ", f"{known.fitting:.0%} of {known.runs:,} measured peaks would fit", term
    )


def _beside(told: str, joint: str, origin: str, term: Style) -> list[str]:
    """A figure and its basis, which goes below it on a narrow terminal."""
    if len(bare(told + joint + origin)) <= term.width:
        return [told + joint + origin]
    return folded([told, " " * 12 + origin])


def breakdown(report: StepReport, term: Style) -> list[str]:
    """A bar of the step, and a row per part."""
    total = report.seconds
    width = max(20, min(WIDEST_BAR, term.width - 4))
    cells: list[str] = []
    done = 0.0
    for name in INKS:
        done += report.breakdown[name]
        cells += [name] * (round(done / total * width) - len(cells))
    bar = "".join(term.ground(INKS[name][0], INKS[name][1]) for name in cells)
    waits = _waits(report)
    rows = [
        [term.ground(INKS[name][0], INKS[name][1]), name.replace("_", " "), duration(report.breakdown[name]),
         percent(report.breakdown[name] / total), waits.get(name, "")]
        for name in INKS if report.breakdown[name] >= 5e-4 * total
    ]  # fmt: skip
    assert set(INKS) == set(PARTS)
    return [bar, "", *columns(["", "exposed time", "", "", ""], rows, left=(0, 1, 4))]


def _waits(report: StepReport) -> dict[str, str]:
    """By part, how much of it the GPU waits for the host, where that is long enough to matter; together no more than
    the step would save, as exchanges hide in some of it."""
    if report.host_wait_seconds < HOST_SHARE * report.seconds:
        return {}
    waits = {name: max(report.host_waits[name], 0.0) for name in ("compute", "recompute")}
    part = min(1.0, report.host_wait_seconds / (sum(waits.values()) or 1.0))
    return {name: f"of it {duration(part * seconds)} waiting for kernel launches"
            for name, seconds in waits.items() if part * seconds >= PART_SHARE * report.seconds}  # fmt: skip


def quicker_lines(report: StepReport, quicker: Sequence[Faster], term: Style) -> list[str]:
    """Changes that were computed to be faster, or to fit where the job does not."""
    if report.memory.fits and not quicker:
        return ["No single change of layout, recomputation or micro-batch is faster and fits."]
    if not quicker:
        return ["Nothing that was tried makes it fit; distsim memory shows what comes nearest."]
    fits = report.memory.fits  # else more GPUs may take more sequences a step, so that its time alone says little
    title = "Faster, with the same GPUs and global batch" if fits else "What makes it fit, most tokens per second first"
    rows = [
        [one.words, duration(one.seconds),
         *([f"{-one.gain:+.1%}"] if fits else [f"{one.tokens_per_second:,.0f}", f"{one.likely:.0%}"]),
         to_type(typed(one.options), one.without)]
        for one in quicker
    ]  # fmt: skip
    head = ["step", *([""] if fits else ["tokens/s", "would fit"]), ""]
    made = flag_table(["", *head], rows, term, left=(0, len(head)), spare=0)
    batch = int(report.setup.layout.global_batch)
    batches = [] if fits else [one.options.get("global_batch", batch) for one in quicker]
    return [term.bold(title), *made, *folded([term.plain(line) for line in batch_words(batch, batches)], 2)]


def searched(setup: Setup, term: Style) -> list[str]:
    """The command that ranks all layouts of many GPUs: advice changes one thing or two."""
    job, layout = setup.job, setup.layout
    if layout.gpus < MANY_GPUS or not isinstance(job.model, str):
        return []
    from distsim.engine.layouts.searchable import FIXED

    kept = {name: getattr(job, name) for name in (*FIXED, "precision") if name in job.model_fields_set}
    options = {**kept, "gpus": layout.gpus, "global_batch": int(layout.global_batch)}
    ordered = {name: options[name] for name in type(job).model_fields if name in options}
    command = f"distsim search {shlex.quote(job.model)} {typed(ordered)}"
    return folded([f"All layouts, ranked: {term.plain(command)}"], 2)
