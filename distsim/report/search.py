"""The answer of ``distsim search`` as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from distsim.engine.search import Choice, SearchReport
from distsim.report import terminal
from distsim.report.memory import number
from distsim.report.search_plot import plot
from distsim.report.step import percent
from distsim.report.style import VERMILLION, Style, bare, columns
from distsim.units import duration, gib

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "zero_group", "micro_batch")
HEADINGS = {"zero_group": "group", "micro_batch": "micro"}
USUALLY_ONE = ("vpp", "cp", "ep", "etp")
WORDS = ("recompute", "schedule", "limited by")
SPARE = ("seq.par.", "tokens/s/GPU", "schedule", "group", "limited by", "vpp", "cp", "etp")
"""Columns that a narrow terminal loses, in this order; the JSON and the command have them all."""
FULL = 0.97
"""Share of the memory above which it limits what else could be done."""
LEAST_SHARE = 0.02
"""Parts of a step below this are not named as limits."""


def lines(report: SearchReport, term: Style) -> list[str]:
    """What was searched, the ranked table, the front, what nearly fits, and the command for the best."""
    made = [*head(report, term), ""]
    if report.best:
        made += [*table(report, report.best, term), "", *plot(report, term), ""]
        made += almost_lines(report, term)
        made.append(f"Best: {command(report.best[0])}")
        return made
    return made + nearest_lines(report, term)


def head(report: SearchReport, term: Style) -> list[str]:
    """The question, and how it was answered."""
    base, request = report.base, report.request
    gpus = " or ".join(f"{number:,}" for number in request.gpus)
    rate = report.evaluated / max(report.seconds, 1e-9)
    sign = term.choose("×", "x")
    words = f"{base.framework.name}, {base.precision.name}, {base.layout.seq:,} tokens"
    words += f", global batch {report.global_batch:,}"
    fits = f"{report.fitting:,} fit {gib(report.limit)}"
    if report.fitting != report.feasible:
        fits += f", {report.feasible:,} of them within {duration(request.within)}"
    return [
        f"{term.bold(base.model.name)} on {gpus} {sign} {base.accelerator.name} ({base.cluster.name}), {words}",
        f"{report.evaluated:,} layouts in {report.seconds:.1f} s ({rate:,.0f} per second): {fits}; "
        f"best by {request.objective}",
    ]  # fmt: skip


def table(report: SearchReport, choices: Sequence[Choice], term: Style, over: bool = False) -> list[str]:
    """One row per layout: time, memory, degrees, and what limits it."""
    shown = [name for name in DEGREES if report.base.model.experts is not None or name not in ("ep", "etp")]
    many = len(report.request.gpus) > 1
    header = ["#", *(["GPUs"] if many else []), "step", "tokens/s/GPU", "MFU", "GiB", *(["over by"] if over else []),
              *(HEADINGS.get(name, name) for name in shown), "recompute", "seq.par.", "schedule",
              *([] if over else ["limited by"])]  # fmt: skip
    rows = []
    for index, one in enumerate(choices, 1):
        y, step = one.report.setup.layout, one.report
        rows.append([
            str(index), *([f"{y.gpus:,}"] if many else []), duration(step.seconds),
            f"{step.tokens_per_second / y.gpus:,.0f}", percent(step.mfu), number(step.memory.peak),
            *([term.ink(number(step.memory.peak - report.limit), VERMILLION)] if over else []),
            *(str(getattr(y, name)) for name in shown), recompute_word(one), "on" if y.sequence_parallel else "off",
            y.schedule if y.pp > 1 else "-", *([] if over else [limits(one, report.limit)]),
        ])  # fmt: skip
    return narrowed(header, rows, terminal.width())


def narrowed(header: list[str], rows: list[list[str]], width: int | None) -> list[str]:
    """The table without columns that a narrow terminal has no room for: first those that are 1 in all rows."""
    ones = [name for i, name in enumerate(header) if name in USUALLY_ONE and all(row[i] == "1" for row in rows)]
    spare = [*ones, *SPARE]
    while True:
        left = tuple(i for i, name in enumerate(header) if name in WORDS)
        made = columns(header, rows, left=left)
        if width is None or max(len(bare(line)) for line in made) <= width or not spare:
            return made
        name = spare.pop(0)
        if name in header:
            place = header.index(name)
            header, *rows = ([*row[:place], *row[place + 1 :]] for row in [header, *rows])


def recompute_word(one: Choice) -> str:
    """``none``, ``selective``, ``full`` or ``full 3`` (layers per stage)."""
    counted = one.report.setup.layout.recompute_layers
    return f"full {counted}" if counted > 0 else one.report.setup.recompute


def limits(one: Choice, limit_bytes: float) -> str:
    """What keeps a layout from being faster: the largest parts of its step beside computation, and full memory."""
    report = one.report
    parts = sorted(((share / report.seconds, name) for name, share in report.breakdown.items() if name != "compute"))
    named = [f"{name.replace('_', ' ')} {share:.0%}" for share, name in reversed(parts[-3:]) if share >= LEAST_SHARE]
    full = ["memory full"] if report.memory.peak > FULL * limit_bytes else []
    return ", ".join(named[: 3 - len(full)] + full) or "compute"


def almost_lines(report: SearchReport, term: Style) -> list[str]:
    """Layouts that would be faster but do not fit."""
    if not report.almost:
        return []
    title = term.bold(f"Almost: faster than the best, but over {gib(report.limit)}")
    return [title, *table(report, report.almost, term, over=True), ""]


def nearest_lines(report: SearchReport, term: Style) -> list[str]:
    """What misses by least, where nothing is feasible."""
    if report.fitting:
        made = [term.ink(f"No layout that fits takes at most {duration(report.request.within)} per step.", VERMILLION)]
        return [*made, term.bold("Quickest that fit"), *table(report, report.nearest, term)]
    made = [term.ink(f"No layout fits {gib(report.limit)}.", VERMILLION), term.bold("Nearest misses")]
    return [*made, *table(report, report.nearest, term, over=True)]


def command(one: Choice) -> str:
    """What a user types to see a layout in full."""
    from distsim.engine.search_fold import flags

    job, usual = one.report.setup.job, type(one.report.setup.job).model_fields["framework"].default
    defaults = one.report.setup.framework.defaults
    chosen = {
        name: value for name, value in one.options.items()
        if name != "dp" and not (value == 1 and name in ("tp", "pp", "cp", "ep", "vpp") and name not in defaults)
    }  # fmt: skip
    stated = {
        "gpu": job.gpu, "cluster": job.cluster, "framework": None if job.framework == usual else job.framework,
        "seq": job.seq, "precision": job.precision, "optimizer": job.optimizer, "attention": job.attention,
        "offload": job.offload, "profile": job.profile,
    }  # fmt: skip
    model = job.model if isinstance(job.model, str) else job.model.name
    return f"distsim step {model} {flags({**stated, **chosen})}"


def diff_lines(report: SearchReport, first: int, second: int, term: Style) -> list[str]:
    """Two ranked layouts side by side: what differs in them, and in their time and memory."""
    one, other = report.best[first - 1], report.best[second - 1]
    rows = [["layout", *(str(n) for n in (first, second)), "difference"]]
    for name in (*DEGREES, "schedule", "sequence_parallel"):
        a, b = (getattr(choice.report.setup.layout, name) for choice in (one, other))
        if a != b:
            rows.append([name.replace("_", " "), str(a), str(b), ""])
    if recompute_word(one) != recompute_word(other):
        rows.append(["recompute", recompute_word(one), recompute_word(other), ""])
    split = len(rows)
    for name in one.report.breakdown:
        a, b = one.report.breakdown[name], other.report.breakdown[name]
        if max(a, b) >= 5e-4 * one.report.seconds:
            rows.append([name.replace("_", " "), duration(a), duration(b), signed(b - a, one.report.seconds)])
    a, b = one.report.seconds, other.report.seconds
    rows.append(["step", duration(a), duration(b), signed(b - a, a)])
    low, high = (choice.report.memory for choice in (one, other))
    for name in low.worst.categories:
        x, z = low.worst.categories[name], high.worst.categories[name]
        rows.append([f"{name}, GiB", number(x), number(z), change(z - x)])
    rows.append(["peak memory, GiB", number(low.peak), number(high.peak), change(high.peak - low.peak)])
    made = columns(rows[0], rows[1:])
    return [made[0], *made[1:split], "", *made[split:]]


def signed(seconds: float, whole: float) -> str:
    """``+120 ms (+1.5%)``."""
    return f"{'+' if seconds >= 0 else '-'}{duration(abs(seconds))} ({seconds / whole:+.1%})"


def change(size_bytes: float) -> str:
    """A difference in GiB with its sign."""
    return "0" if size_bytes == 0 else f"{'+' if size_bytes > 0 else '-'}{number(abs(size_bytes))}"
