"""The answer of ``distsim search`` as lines of text."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Sequence

from distsim.engine.footprint.peak_error import ROOM, TIGHT, peak_error
from distsim.engine.layouts.choice import Choice
from distsim.engine.layouts.money import Rent
from distsim.engine.layouts.ranking import BETTER
from distsim.engine.layouts.report import SearchReport
from distsim.report.job_words import kernel_words, offload_words, trained_words
from distsim.report.memory import number
from distsim.report.prose import either, folded
from distsim.report.search_plot import plot
from distsim.report.search_table import DEGREES, recompute_word, table
from distsim.report.style import VERMILLION, Style, columns
from distsim.specs.flags import typed
from distsim.units import DAY, count, days_words, dollars, duration, gib, stated

SAME = 1e-6
"""Share of a step by which two layouts take the same: far less than any figure shown."""


def lines(report: SearchReport, term: Style) -> list[str]:
    """What was searched, the ranked table, the front, what nearly fits, and the command for the best."""
    made = [*head(report, term), ""]
    if report.best:
        made += [
            *table(report, report.best, term),
            *simulated_lines(report),
            *tight_lines(report),
            "",
        ]
        made += [*drawn, ""] if (drawn := plot(report, term)) else []
        made += almost_lines(report, term)
        made.append(f"Best: {command(report.best[0])}")
        return made
    return made + nearest_lines(report, term)


def head(report: SearchReport, term: Style) -> list[str]:
    """The question, and how it was answered."""
    base, request = report.base, report.request
    gpus = either([f"{number:,}" for number in request.gpus])
    rate = report.evaluated / max(report.seconds, 1e-9)
    recipes = either(request.precisions or [base.precision.name])
    batches = either([f"{batch:,}" for batch in report.batches])
    until = " until interrupted" if report.interrupted else ""
    words = f"{base.framework.name}, {recipes}, {base.layout.seq:,} tokens, global batch {batches}"
    words = ", ".join([words, *kernel_words(base), *([] if len(request.offloads) > 1 else offload_words(base))])
    words = "; ".join([words, *trained_words(base)])
    fits = f"{report.fitting:,} fit in {gib(report.limit)}"
    if report.limited:
        fits += f", {report.feasible:,} of them within {limit_words(report)}"
    told = [
        f"{base.model.name} on {gpus} x {base.gpu_words} ({base.cluster.name}), {words}",
        f"{report.evaluated:,} layouts in {report.seconds:.1f} s{until} ({rate:,.0f} per second): {fits}; "
        f"best by {request.objective}",
    ]  # fmt: skip
    first, *rest = folded(told, indent=4)
    return [first.replace(base.model.name, term.bold(base.model.name), 1), *rest, *price_lines(report)]


def limit_words(report: SearchReport) -> str:
    """``20 s per step``, or how long the tokens may take."""
    request, words = report.request, []
    if request.within < math.inf:
        words.append(f"{stated(duration(request.within))} per step")
    if request.tokens is not None and request.deadline < math.inf:
        words.append(f"{days_words(request.deadline / DAY)} for {count(request.tokens)} tokens")
    return " and ".join(words)


def alike_rents(report: SearchReport) -> list[list[Rent]]:
    """Rents of the numbers of GPUs, those at the same rate together."""
    found: dict[object, list[Rent]] = {}
    for rent in report.rents.values():
        found.setdefault((rent.quote, rent.usd_per_gpu_hour), []).append(rent)
    return list(found.values())


def simulated_lines(report: SearchReport) -> list[str]:
    """How far the event simulation of the ranked layouts is from their times, and which it would put first."""
    simulated = [one.simulated_seconds for one in report.best]
    off = [
        (own or one.report.seconds) / one.report.seconds - 1 for one, own in zip(report.best, simulated, strict=True)
    ]
    apart = [longer for longer, own in zip(off, simulated, strict=True) if own is not None]
    if not apart:
        return []
    ends = dict.fromkeys(f"{end:+.1%}" for end in (min(apart), max(apart)))
    near = " to ".join(ends) if max(map(abs, apart)) >= 1e-3 else "within 0.1%"
    which = f"the {len(apart)} layouts" if len(apart) > 1 else "the one layout"
    told = f"Event simulation of {which} with a pipeline: {near} of these step times"
    rates = [one.report.tokens_per_second / (1 + longer) for one, longer in zip(report.best, off, strict=True)]
    first = rates.index(max(rates))
    if first and report.request.objective == "throughput":
        told += f"; in simulation rank {first + 1} is the fastest"
    return folded([told], indent=4)


def tight_lines(report: SearchReport) -> list[str]:
    """Whether the best would fit by measured runs too, and how much room makes that likely."""
    best = report.best[0].report.memory
    known = best.known
    if known.fitting >= TIGHT:
        return []
    told = f"Rank 1 barely fits: measured against {known.runs:,} published runs, {known.fitting:.0%} of such jobs would"
    return folded([f"{told} fit, {peak_error(1 - ROOM, 1).fitting:.0%} with --margin {ROOM:.0%}"], indent=4)


def price_lines(report: SearchReport) -> list[str]:
    """What is paid for the GPUs, to whom, and how old the price is; nothing where no prices were asked for."""
    return folded([price_words(rents) for rents in alike_rents(report)], indent=4)


def price_words(rents: Sequence[Rent]) -> str:
    """One rate of rent in words."""
    first = rents[0]
    rate = f"${first.usd_per_gpu_hour:,.2f} per GPU-hour"
    if first.quote is None:
        return f"price: {rate}, as stated"
    quote = first.quote
    paid = [f"{rent.gpus:,} GPUs billed as {rent.billed_gpus:,}" for rent in rents if rent.billed_gpus != rent.gpus]
    whole = f"; whole instances: {', '.join(paid)}" if paid else ""
    age = quote.age(datetime.date.today())
    told = f"price: {rate}, {quote.term} from {quote.provider} ({quote.instance}; price of {quote.date}, {age} old)"
    return told + whole + owed_words(rents)


def owed_words(rents: Sequence[Rent]) -> str:
    """What a reservation binds its buyer to; nothing for machines that are paid by the hour."""
    owed = [(rent, whole) for rent in rents if (whole := rent.committed_usd()) is not None]
    told = ", ".join(f"{dollars(whole)} for {rent.billed_gpus:,} GPUs" for rent, whole in owed)
    return f"; owed for each full term: {told}" if told else ""


def almost_lines(report: SearchReport, term: Style) -> list[str]:
    """Layouts that would be better by the objective but do not fit."""
    if not report.almost:
        return []
    better = BETTER[report.request.objective]
    title = term.bold(f"Near misses: {better} the best, but over {gib(report.limit)}")
    return [title, *table(report, report.almost, term, over=True), ""]


def nearest_lines(report: SearchReport, term: Style) -> list[str]:
    """What misses by least, where nothing is feasible."""
    if report.interrupted and not report.nearest:
        return [term.ink("Interrupted before a layout was evaluated.", VERMILLION)]
    if report.fitting:
        which = "None of the layouts so far" if report.interrupted else "No layout"
        told = f"{which} that fits stays within {limit_words(report)}."
        return [term.ink(told, VERMILLION), term.bold("Fastest that fit"), *table(report, report.nearest, term)]
    which = "No layout" if not report.interrupted else "None of the layouts so far"
    made = [term.ink(f"{which} fits in {gib(report.limit)}.", VERMILLION), term.bold("Nearest misses")]
    return [*made, *table(report, report.nearest, term, over=True)]


def command(one: Choice) -> str:
    """The command that shows a layout in full."""
    job, defaults = one.report.setup.job, one.report.setup.framework.defaults
    chosen = {
        name: value for name, value in one.options.items()
        if name != "dp" and not (value == 1 and name in ("tp", "pp", "cp", "ep", "vpp") and name not in defaults)
    }  # fmt: skip
    model = job.model if isinstance(job.model, str) else job.model.name
    return f"distsim step {shlex.quote(model)} {typed(chosen)}"


def diff_lines(report: SearchReport, first: int, second: int) -> list[str]:
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
    """``+120 ms (+1.5%)``; 0 where nothing of it shows, as of the same terms summed in another order."""
    if abs(seconds) <= SAME * whole:
        return "0"
    return f"{'+' if seconds >= 0 else '-'}{duration(abs(seconds))} ({seconds / whole:+.1%})"


def change(size_bytes: float) -> str:
    """A difference in GiB with its sign."""
    return "0" if size_bytes == 0 else f"{'+' if size_bytes > 0 else '-'}{number(abs(size_bytes))}"
