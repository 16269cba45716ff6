"""The answer of ``distsim memory`` as lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from distsim.engine.advice.mend import Mended
from distsim.engine.advice.trials import Mend
from distsim.engine.footprint.peak_error import TIGHT
from distsim.engine.jobs.framework_notes import beyond_default_at
from distsim.engine.memory import CATEGORIES, MemoryReport, StageMemory
from distsim.report.bars import bar, legend
from distsim.report.flag_tables import flag_table
from distsim.report.host_memory import host_lines
from distsim.report.job_words import batch_words, flowed, job_lines
from distsim.report.prose import folded as folded_lines
from distsim.report.style import GREEN, ORANGE, VERMILLION, Style, bare, columns
from distsim.specs.flags import to_type
from distsim.units import GIB, gib

WIDEST_BAR = 100
SHOWN = 0.005 * GIB
"""Bytes that a column of GiB does not round to nothing."""
LARGE = 1000 * GIB
"""Bytes from which on decimals of GiB say little."""
SHARDED = ("nothing", "optimizer", "+ gradients", "+ parameters")
REFUSED = ", refused"
"""Marks a stage that the default framework would refuse if somebody named it; a line below tells why."""
Alternative = tuple[int, MemoryReport | str]
"""A ZeRO stage with its memory, or with what makes it invalid."""


class Group(NamedTuple):
    """Neighbouring stages that need the same bytes."""

    first: int
    last: int
    memory: StageMemory

    @property
    def label(self) -> str:
        """``0`` or ``1-6``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def folded(stages: Sequence[StageMemory], every: bool = False) -> list[Group]:
    """Stages that look alike as one row, unless ``every`` one is asked for."""
    groups: list[Group] = []
    for stage in stages:
        last = groups[-1] if groups else None
        if last and not every and _look(last.memory) == _look(stage):
            groups[-1] = last._replace(last=stage.stage)
        else:
            groups.append(Group(stage.stage, stage.stage, stage))
    return groups


def _look(stage: StageMemory) -> tuple[str, ...]:
    return (*(number(stage.categories[name]) for name in CATEGORIES), number(stage.peak), stage.peak_moment)


def number(size_bytes: float, whole_from: float = math.inf) -> str:
    """GiB without the word, for a column that has it in its heading; sizes from ``whole_from`` on without decimals."""
    if size_bytes == 0:
        return "0"
    digits = 0 if size_bytes >= whole_from else 2
    return f"{size_bytes / GIB:,.{digits}f}" if size_bytes >= SHOWN else "<0.01"


def lines(report: MemoryReport, term: Style, every: bool = False) -> list[str]:
    """The job, the table, the bars and the verdict."""
    groups = folded(report.stages, every)
    made = [
        *job_lines(report.setup, term),
        "",
        *table(groups, term.width),
        "",
        *chart(groups, report.capacity, term),
        "",
    ]
    return [*made, *verdict(report, term)]


def table(groups: Sequence[Group], width: int) -> list[str]:
    """GiB by category, a row per group of stages; numbers that are too wide together lose their decimals."""
    header = ["stage", *CATEGORIES, "peak"]
    made: list[str] = []
    for gap, whole_from in ((2, math.inf), (1, math.inf), (1, LARGE)):  # the first that is as narrow
        rows = [["", *["GiB"] * (len(CATEGORIES) + 1)]]
        for group in groups:
            sizes = [*(group.memory.categories[name] for name in CATEGORIES), group.memory.peak]
            rows.append([group.label, *(number(size, whole_from) for size in sizes)])
        made = columns(header, rows, gap=gap)
        if max(map(len, made)) <= width:
            break
    return made


def chart(groups: Sequence[Group], capacity: float, term: Style) -> list[str]:
    """A bar per group of stages against the capacity, and the letters' meaning."""
    label = max(len(f"stage {group.label}") for group in groups)
    total = max(len(gib(group.memory.peak)) for group in groups)
    width = max(10, min(WIDEST_BAR, term.width - label - total - 6))
    full = max(capacity, *(group.memory.peak for group in groups))
    made = [
        f"{f'stage {group.label}':<{label}}  {bar(group.memory.categories, capacity, full, width, term)}"
        f" {gib(group.memory.peak):>{total}}"
        for group in groups
    ]
    present = {name: sum(group.memory.categories[name] for group in groups) for name in CATEGORIES}
    meanings = [*legend(present, term), f"{term.choose('│', '|')} capacity {gib(capacity)}"]
    indent = " " * (label + 2)
    return [*made, *(indent + line for line in flowed(meanings, "  ", term.width - len(indent)))]


def verdict(report: MemoryReport, term: Style) -> list[str]:
    """Whether it fits, by how much, and what decides."""
    worst = report.worst
    share = f"{abs(report.headroom) / report.capacity:,.0%}"
    where = f"stage {worst.stage}, {peak_words(worst)}" if len(report.stages) > 1 else peak_words(worst)
    need = f"{gib(report.peak)} of {gib(report.capacity)} on {report.setup.accelerator.name}"
    spare = f"{gib(abs(report.headroom))} ({share}) {'to spare' if report.headroom >= 0 else 'over'}"
    told = flowed([f"{_fits(report, term)}: {need}", spare, f"peak moment: {where}"], "; ", term.width)
    return [*told, *flowed(known_words(report), " ", term.width), *host_lines(report, term)]


def peak_words(stage: StageMemory) -> str:
    """The moment of a stage's peak, what of the activations there are working copies of the optimizer, and what more of
    them the column of gradients holds."""
    moment = next(one for one in stage.moments if one.name == stage.peak_moment)
    own = min(moment.temporaries, stage.categories["activations"])
    if own >= SHOWN:
        return f"{moment.name} (of the activations {gib(own)} are its temporaries)"
    before = moment.before_gradients
    return f"{moment.name} ({gib(before)} of activations where gradients will be)" if before >= SHOWN else moment.name


def known_words(report: MemoryReport) -> list[str]:
    """How sure that is, from measured runs."""
    known = report.known
    half, most = (f"{number(low)} to {gib(high)}" for low, high in (known.half, (known.low, known.high)))
    return [
        f"from {known.runs:,} measured runs ({known.sources} sources, equally weighted):", f"50% interval {half},",
        f"90% interval {most};", f"{known.fitting:.0%} would fit",
    ]  # fmt: skip


def zero_lines(alternatives: Sequence[Alternative], current: int, term: Style) -> list[str]:
    """The same job at every ZeRO stage, the job's own marked."""
    header = ["ZeRO", "shards", "parameters", "gradients", "optimizer", "peak", "headroom", ""]
    rows = [["", "", *["GiB"] * 5, ""]]
    invalid = []
    reports = {stage: answer for stage, answer in alternatives if not isinstance(answer, str)}
    refused = {stage: beyond_default_at(one.setup, reports[current].setup) for stage, one in reports.items()}
    for stage, answer in alternatives:
        mark = " *" if stage == current else ""
        if isinstance(answer, str):
            rows.append([f"{stage}{mark}", SHARDED[stage], *["-"] * 5, "not valid"])
            invalid.append(f"ZeRO {stage}: {answer}")
            continue
        worst = answer.worst
        held = [number(worst.categories[name]) for name in CATEGORIES[:3]]
        spare = f"{'-' if answer.headroom < 0 else ''}{number(abs(answer.headroom))}"
        told = term.ink("fits", GREEN) if answer.fits else term.ink("too big", VERMILLION)
        if beyond := refused.get(stage):
            told += REFUSED
            invalid.append(f"ZeRO {stage}: {beyond}")
        rows.append([f"{stage}{mark}", SHARDED[stage], *held, number(answer.peak), spare, told])
    made = columns(header, rows, left=(0, 1, 7))
    if max(len(bare(line)) for line in made) > term.width:  # the numbers before the words
        made = columns(header[:1] + header[2:], [row[:1] + row[2:] for row in rows], left=(0, 6))
    title = "The same job at each ZeRO stage, on its fullest GPU (* this job):"
    return [title, *made, *folded_lines([term.plain(line) for line in invalid], 2)]


def barely(report: MemoryReport) -> bool:
    """Whether a job fits that measured runs doubt."""
    return bool(report.fits and report.known.fitting < TIGHT)


def _fits(report: MemoryReport, term: Style) -> str:
    if barely(report):
        return f"barely {term.ink('fits', ORANGE)}"
    return term.ink("fits", GREEN) if report.fits else term.ink("does not fit", VERMILLION)


def mend_lines(mended: Mended, term: Style, title: str = "What makes it fit") -> list[str]:
    """What would make the job fit, smallest change first."""
    if not mended.fitting:
        return _nothing_fits(mended, term)
    header = ["what changes", "peak", "capacity", "would fit", "add to the command"]
    rows = [["", "GiB", "GiB", "of runs", ""], *(_mend_row(found) for found in mended.fitting)]
    made = flag_table(header, rows, term, left=(0, 4), spare=0)
    told = [f"{title}, smallest change first (each computed):", *made]
    batch = batch_words(mended.fitting[0].batch, [one.global_batch for one in mended.fitting])
    return [term.plain(line) for line in (*told, *folded_lines(batch, 2))]


def _mend_row(found: Mend) -> list[str]:
    return [found.words, number(found.report.peak), number(found.report.capacity), f"{found.likely:.0%}",
            to_type(found.flags, found.without)]  # fmt: skip


def _nothing_fits(mended: Mended, term: Style) -> list[str]:
    text = f"Nothing that was tried makes it fit ({mended.tried:,} layouts)."
    if mended.nearest is None:
        return [text]
    near = mended.nearest
    over = near.report.headroom < 0
    host = f"which needs too much host memory, {gib(near.report.node_bytes)} per node"
    beyond = f"{gib(-near.report.headroom)} over" if over else host
    short = f"Nearest: {to_type(near.flags, near.without)} with {gib(near.report.peak)}, {beyond}"
    return [text, *folded_lines([term.plain(short)], 2)]
