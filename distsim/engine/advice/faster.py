"""Single changes that make a step faster on the same GPUs with the same global batch, each computed, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from distsim import catalog
from distsim.architectures import traits_of
from distsim.arrays import ceil_div
from distsim.engine.advice.recomputation import less_recomputation
from distsim.engine.advice.runnable import runs
from distsim.engine.exchanges.reach import refuse_beyond
from distsim.engine.jobs.dispatch import can_send_once, sends_once, usual_once
from distsim.engine.jobs.graphs import captures
from distsim.engine.jobs.lacking import sixteen_bits, without_flash
from distsim.engine.jobs.profile import fused_instead, other_losses
from distsim.engine.jobs.reference import whole_pairs
from distsim.engine.jobs.resolve import Setup, resolve
from distsim.engine.jobs.tp_overlap import overlapped
from distsim.engine.memory import MemoryReport, memory_of
from distsim.engine.step import seconds_of
from distsim.engine.steps.report import StepReport
from distsim.errors import DistsimError
from distsim.specs.context_modes import context_modes
from distsim.specs.job import Job
from distsim.specs.layout import Layout
from distsim.specs.rules import divisors
from distsim.specs.stage_layers import BALANCED

if TYPE_CHECKING:
    from distsim.engine.advice.trials import Mend
    from distsim.engine.layouts.report import Choice, SearchReport

INTERLEAVED = "interleaved-1f1b"
LEAST_GAIN = 0.005
"""Gains below half a per cent are within the noise of any run."""
GROWING = ("micro-batch", "vpp")
"""Changes by more and more of the same, as long as each gains on the one before."""


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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


@overload
def advise(report: StepReport) -> list[Faster]: ...
@overload
def advise(report: MemoryReport) -> list[Mend]: ...
@overload
def advise(report: SearchReport) -> list[Mend] | list[Choice]: ...
def advise(report: StepReport | MemoryReport | SearchReport) -> list[Faster] | list[Mend] | list[Choice]:
    """What would make a job faster, or, where it does not fit or only its memory was asked for, what makes it fit. Of a
    search without layouts what makes its nearest miss fit, or the layout on more GPUs that is quick enough. Raises
    DistsimError for other reports."""
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
    found = mends(report)
    if isinstance(found, Quick):
        return [] if found.enough is None else [found.enough]
    return [] if found is None else found.fitting


def _against(report: StepReport, setup: Setup, seconds: float) -> tuple[float, float]:
    """Share of the time per sequence that is saved, and tokens per second."""
    ratio = seconds / batch_of(setup.layout) / (report.seconds / batch_of(report.setup.layout))
    return 1 - ratio, report.tokens_per_second / ratio


def faster(report: StepReport, most: int = 3) -> list[Faster]:
    """The changes that save most among those that fit memory, best first, at most one of each kind."""
    tried: list[tuple[float, str, str, dict[str, Any], Setup]] = []
    reached = dict.fromkeys(GROWING, report.seconds)
    same = {name: getattr(report.setup, name) for name in ("accelerator", "cluster", "framework")}
    for kind, words, options in changes(report.setup):
        if kind in reached and not reached[kind]:
            continue
        try:
            setup = resolve(changed(report.setup, options), same)
            if not runs(report.setup, setup) or setup.layout.zero != options.get("zero", setup.layout.zero):
                continue  # the framework does not run it, or at another stage than asked for
            seconds = seconds_of(setup)
        except DistsimError:
            continue
        if kind in reached:
            reached[kind] = seconds if 1 - seconds / reached[kind] >= LEAST_GAIN else 0.0
        if 1 - seconds / report.seconds >= LEAST_GAIN:
            tried.append((seconds, kind, words, typed(report.setup, setup, options), setup))
    found: dict[str, Faster] = {}
    for seconds, kind, words, shown, setup in sorted(tried, key=lambda entry: entry[0]):
        if len(found) == most:
            break
        if kind in found:
            continue
        memory = memory_of(setup)
        if memory.fits:
            gain, rate = _against(report, setup, seconds)
            found[kind] = Faster(words, shown, seconds, gain, memory.peak, rate, memory.known.fitting)
    return list(found.values())


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
        found.append(Faster(one.words, one.shown, seconds, gain, one.report.peak, rate, one.likely))
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
    layers = BALANCED if "stage_layers" in options else job.stage_layers
    kept = {"gpus": layout.gpus, "global_batch": batch_of(layout), "dp": None}
    return job.model_copy(update={**kept, **options, "stage_layers": layers})


def changes(setup: Setup) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, words, options) of every change worth computing."""
    layout, job = setup.layout, setup.job
    yield from less_recomputation(setup)
    for kind, size in _micro_batches(layout.micro_batch, layout.micro_batches):
        if whole_pairs(job, size):
            yield kind, f"micro-batches of {size}", {"micro_batch": size}
    yield from _divided(setup)
    if recipe := sixteen_bits(setup):
        yield "precision", "16-bit matrix products", {"precision": recipe}
    if setup.precision.math == "fp32" and setup.accelerator.peak.tf32:
        yield "tf32", "TF32 matrix products", {"precision": "tf32"}
    kernels = setup.kernels
    if layout.attention == "eager" and not (
        kernels.composed_only or without_flash(setup.accelerator, "flash", kernels.attention_kernel)
    ):
        yield "attention", "flash attention", {"attention": "flash"}
    if layout.pp > 1 and setup.framework.supports.uneven and job.stage_layers is None:
        yield "stage-layers", "stages of equal compute", {"stage_layers": "balanced"}
    for name in other_losses(setup.framework, setup.model, job, setup.accelerator):
        yield "loss", f"{name} loss", {"loss": name}
    yield from _graphed(setup)
    if fused := fused_instead(setup.framework, job):
        yield "update", "fused optimizer", {"optimizer": fused}
    if setup.framework.compiled and not setup.compiled and traits_of(setup.accelerator).triton:
        yield "compile", "torch.compile", {"compile": True}


def _divided(setup: Setup) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Other degrees of parallelism, chunks, and ways to share states."""
    layout, job = setup.layout, setup.job
    for name, words in (("tp", "tensor parallelism"), ("pp", "pipeline stages"), ("cp", "context parallelism")):
        old = getattr(layout, name)
        for size in (old // 4, old // 2, old * 2):
            if size >= 1 and layout.gpus % size == 0:
                yield name, f"{words} {size}", {name: size, **(_unpiped(job) if name == "pp" and size == 1 else {})}
    if layout.cp > 1:
        for mode in context_modes(setup.framework.supports, setup.model):
            if mode in setup.framework.supports.cp_modes and mode != layout.cp_mode:
                words = f"context parallelism by {mode.replace('_', '-')}"
                yield "cp mode", words, {"cp_mode": mode}
    for size in (layout.ep // 8, layout.ep // 4, layout.ep // 2, layout.ep * 2, layout.ep * 4, layout.ep * 8):
        if setup.model.experts is not None and size >= 1 and setup.model.experts.count % size == 0:
            yield "ep", f"expert parallelism {size}", {"ep": size}
    if layout.pp > 1:
        for chunks in divisors(int(ceil_div(setup.model.layers, layout.pp))):
            if chunks > layout.vpp:
                schedule = {} if job.schedule is None else {"schedule": INTERLEAVED}
                yield "vpp", f"{chunks} model chunks per stage", {"vpp": chunks, **schedule}
    for zero in range(4):
        if zero != layout.zero and layout.dp * layout.cp > 1:
            yield "zero", f"ZeRO {zero}", {"zero": zero}
    if layout.zero and job.sync != "local-sgd":  # whose groups are replicas
        for size in _sharding_groups(layout.zero_group):
            yield "zero group", f"states sharded over {size} ranks", {"zero_group": size}


def _graphed(setup: Setup) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """CUDA graphs of as much as the chip can capture, and communication overlapped with computation."""
    supports, kernels, experts = setup.framework.supports, setup.kernels, setup.model.experts
    whole = experts is None or traits_of(setup.accelerator).device_counts
    kind = "iteration" if whole else "modules"
    if kind in supports.cuda_graphs and captures(setup.accelerator) and kernels.graphs not in (kind, "iteration"):
        yield "cuda graphs", f"CUDA graphs of {'whole steps' if whole else 'modules'}", {"cuda_graphs": kind}
    if experts is not None and supports.expert_overlap and not kernels.expert_overlap:
        yield "expert overlap", "expert all-to-all overlapped", {"expert_overlap": True}
    if experts is not None and setup.layout.ep > 1 and not sends_once(setup.framework, kernels):
        name = usual_once(setup.cluster)
        if name in supports.dispatchers and can_send_once(setup.accelerator):
            yield "expert dispatcher", f"experts' tokens sent once per node ({name})", {"expert_dispatcher": name}
    if supports.tp_pieces and setup.compiled and setup.layout.sequence_parallel and not overlapped(setup):
        yield "tp overlap", "asynchronous tensor parallelism", {"tp_comm_overlap": True}


def _micro_batches(size: int, count: int) -> Iterator[tuple[str, int]]:
    """Kinds of change and sizes: half as large, and twice, four times and so on."""
    if size > 1 and size * count % (size // 2) == 0:
        yield "smaller micro-batch", size // 2
    while count % 2 == 0:
        size, count = size * 2, count // 2
        yield "micro-batch", size


def _sharding_groups(ranks: int) -> Iterator[int]:
    """Fewer ranks that share one copy of the states: a fourth or less of those before, down to two."""
    for size in reversed(divisors(ranks)):
        if 1 < size <= ranks // 4:
            ranks = size
            yield size


def _unpiped(job: Job) -> dict[str, Any]:
    """What a job says of its pipeline and must not say without one."""
    plain = {"vpp": 1, "schedule": "1f1b"}
    return {name: value for name, value in plain.items() if getattr(job, name) not in (None, value)}
