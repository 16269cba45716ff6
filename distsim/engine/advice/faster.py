"""Single changes that make a step faster on the same GPUs with the same global batch, each computed, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from distsim import catalog
from distsim.engine.advice.quicker import changes
from distsim.engine.advice.restored import restored
from distsim.engine.advice.runnable import runs
from distsim.engine.exchanges.reach import refuse_beyond
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.memory import MemoryReport, memory_of
from distsim.engine.step import seconds_of
from distsim.engine.steps.report import StepReport
from distsim.errors import DistsimError
from distsim.specs.job import Job
from distsim.specs.layout import Layout
from distsim.specs.stage_layers import parse

if TYPE_CHECKING:
    from distsim.engine.advice.search_settings import Quicker
    from distsim.engine.advice.trials import Mend
    from distsim.engine.layouts.choice import Choice
    from distsim.engine.layouts.report import SearchReport

LEAST_GAIN = 0.005
"""Gains below half a per cent are within the noise of any run."""
GROWING = ("micro-batch", "vpp")
"""Changes by more and more of the same, as long as each gains on the one before."""
OF_FRAMEWORK = {"tp_comm_overlap", "dp_comm_overlap", "expert_dispatcher"}
"""Settings that a framework is loaded again for: that of a resolved job exchanges as the job states it."""
WORTH_A_PAIR = 0.05
"""Share of the best change's time that one which does not fit must save beyond it to be tried together with another,
which costs some of it."""


class _Tried(NamedTuple):
    """A change and the time that a step then takes, whether or not it fits."""

    seconds: float
    kind: str
    words: str
    options: dict[str, Any]
    setup: Setup


class Faster(NamedTuple):
    """One change, what a user types for it, and the time it gives."""

    words: str
    options: dict[str, Any]
    """What to add to the command line, which then has the same GPUs and the same global batch."""
    seconds: float
    gain: float
    """Share of the time per sequence that it saves; negative where it costs time."""
    peak: int
    tokens_per_second: float
    likely: float
    """Share of measured runs with such a peak that would fit."""
    without: tuple[str, ...] = ()
    """Options of the command line that are to be left out of it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


@overload
def advise(report: StepReport) -> list[Faster]: ...
@overload
def advise(report: MemoryReport) -> list[Mend]: ...
@overload
def advise(report: SearchReport) -> list[Mend] | list[Choice] | list[Quicker]: ...
def advise(
    report: StepReport | MemoryReport | SearchReport,
) -> list[Faster] | list[Mend] | list[Choice] | list[Quicker]:
    """What would make a job faster, or, where it does not fit or only its memory was asked for, what makes it fit. Of a
    search settings that make one of its layouts faster than the best; of one without layouts what makes its nearest
    miss fit, or the layout on more GPUs that is quick enough. Raises DistsimError for other reports."""
    if isinstance(report, StepReport):
        with catalog.settled():
            return (faster if report.memory.fits else fitting)(report)
    from distsim.engine.advice.mend import mend

    if isinstance(report, MemoryReport):
        return [] if report.fits else mend(report).fitting
    from distsim.engine.advice.search import Quick, mends
    from distsim.engine.layouts.report import SearchReport

    if not isinstance(report, SearchReport):
        told = "give what distsim.step, distsim.memory or distsim.search returns"
        raise DistsimError(f"no advice on a {type(report).__name__}", told)
    if report.best:
        from distsim.engine.advice.search_settings import quicker

        return [] if (one := quicker(report)) is None else [one]
    found = mends(report)
    if isinstance(found, Quick):
        return [] if found.enough is None else [found.enough]
    return [] if found is None else found.fitting


def _against(report: StepReport, setup: Setup, seconds: float) -> tuple[float, float]:
    """Share of the time per sequence that is saved, and tokens per second."""
    ratio = seconds / batch_of(setup.layout) / (report.seconds / batch_of(report.setup.layout))
    return 1 - ratio, report.tokens_per_second / ratio


def faster(report: StepReport, most: int = 3) -> list[Faster]:
    """The changes that save most among those that fit memory, at most one of each kind; and beside them a pair, where
    one that would save more fits with another. Best first."""
    found: dict[str, Faster] = {}
    too_big: list[_Tried] = []
    for one in sorted(_quicker(report), key=lambda one: one.seconds):
        if len(found) == most:
            break
        if one.kind in found:
            continue
        memory = memory_of(one.setup)
        if memory.fits:
            found[one.kind] = _told(report, one, memory)
        else:
            too_big.append(one)
    best = min((one.seconds for one in found.values()), default=report.seconds)
    hopeful = [one for one in too_big if one.seconds <= (1 - WORTH_A_PAIR) * best]
    both = _paired(report, hopeful, best) if hopeful else []
    return sorted([*found.values(), *both], key=lambda one: one.seconds)


def _quicker(report: StepReport) -> Iterator[_Tried]:
    """Single changes that make a step faster, whether or not they fit; among them what the user stated, put back."""
    reached = dict.fromkeys(GROWING, report.seconds)
    for kind, words, options in (*changes(report.setup), *_put_back(report.setup)):
        if kind in reached and not reached[kind]:
            continue
        if (setup := _resolved(report.setup, options)) is None or (seconds := _seconds(setup)) is None:
            continue
        if kind in reached:
            reached[kind] = seconds if 1 - seconds / reached[kind] >= LEAST_GAIN else 0.0
        if 1 - seconds / report.seconds >= LEAST_GAIN:
            yield _Tried(seconds, kind, words, options, setup)


def _put_back(setup: Setup) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What the user stated, put back: kinds, words and options as of ``changes``."""
    for one in restored(setup):
        yield "fewer chunks" if one.name == "vpp" else one.name.replace("_", " "), one.words, one.options


def _resolved(before: Setup, options: dict[str, Any]) -> Setup | None:
    """The job with other options; None where it is no valid layout, or its framework does not run it, or not at the
    ZeRO stage asked for."""
    same: dict[str, Any] = {"accelerator": before.accelerator, "cluster": before.cluster}
    if OF_FRAMEWORK.isdisjoint(options):
        same["framework"] = before.framework
    try:
        setup = resolve(changed(before, options), same)
    except DistsimError:
        return None
    asked = options.get("zero", setup.layout.zero)
    return setup if runs(before, setup) and setup.layout.zero == asked else None


def _seconds(setup: Setup) -> float | None:
    """The step time; None where nothing joins the ranks as they lie, or they exchange what they cannot."""
    try:
        return seconds_of(setup)
    except DistsimError:
        return None


def _told(report: StepReport, one: _Tried, memory: MemoryReport) -> Faster:
    """A change that fits, as it is told."""
    gain, rate = _against(report, one.setup, one.seconds)
    without = tuple(name for name, value in one.options.items() if value is None)
    shown = typed(report.setup, one.setup, one.options)
    return Faster(one.words, shown, one.seconds, gain, memory.peak, rate, memory.known.fitting, without)


def _paired(report: StepReport, hopeful: list[_Tried], best: float) -> list[Faster]:
    """The fastest pair of a change that does not fit and one that frees memory, if it is faster than the ``best`` one
    alone."""
    from distsim.engine.advice.pairs import pairs  # few jobs have any

    found: list[tuple[_Tried, MemoryReport]] = []
    for one, words, options, memory in pairs(report.setup, hopeful, partial(_resolved, report.setup)):
        if (seconds := _seconds(memory.setup)) and seconds <= (1 - LEAST_GAIN) * best:
            found.append((_Tried(seconds, one.kind, words, options, memory.setup), memory))
    return [_told(report, *min(found, key=lambda entry: entry[0].seconds))] if found else []


def fitting(report: StepReport, most: int = 6) -> list[Faster]:
    """What makes a job fit that does not, most tokens per second first; the GPUs may be more or larger."""
    from distsim.engine.advice.mend import mend

    found = []
    for one in mend(report.memory, most).fitting:
        setup = one.report.setup
        try:
            refuse_beyond(setup, setup.layout.gpus)
            seconds = seconds_of(setup)
        except DistsimError:  # it has the memory, and nothing that joins it
            continue
        gain, rate = _against(report, setup, seconds)
        found.append(Faster(one.words, one.shown, seconds, gain, one.report.peak, rate, one.likely, one.without))
    return sorted(found, key=lambda one: -one.tokens_per_second)


def batch_of(layout: Layout) -> int:
    """Sequences per optimizer step."""
    return int(layout.global_batch)


def typed(old: Setup, new: Setup, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a user adds: those that change, and those that keep GPUs and global batch where the command
    left them open or said otherwise."""
    job, layout = old.job, new.layout
    shown = {name: value for name, value in options.items() if value is not None}
    if job.gpus is None and not {"tp", "pp", "cp"}.isdisjoint(options):
        shown["gpus"] = layout.gpus
    if job.global_batch is None and (layout.micro_batches > 1 or layout.dp != old.layout.dp):
        shown["global_batch"] = batch_of(layout)
    if job.dp not in (None, layout.dp):
        shown["dp"] = layout.dp
    return shown


def changed(setup: Setup, options: dict[str, Any]) -> Job:
    """The job with other options, the GPUs and the tokens of a step as they are."""
    layout, job = setup.layout, setup.job
    layers = parse(options["stage_layers"]) if "stage_layers" in options else job.stage_layers
    kept = {"gpus": layout.gpus, "global_batch": batch_of(layout), "dp": None}
    return job.model_copy(update={**kept, **options, "stage_layers": layers})
