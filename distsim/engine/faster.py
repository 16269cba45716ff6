"""Single changes that make a step faster on the same GPUs with the same global batch, each computed, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from distsim.engine.resolve import Setup, resolve
from distsim.engine.step import StepReport, seconds_of
from distsim.errors import DistsimError
from distsim.specs.job import Job
from distsim.specs.rules import divisors
from distsim.specs.stage_layers import BALANCED

LEAST_GAIN = 0.005
"""Gains below half a per cent are within the noise of any run."""


class Faster(NamedTuple):
    """One change, what a user types for it, and the time it gives."""

    words: str
    options: dict[str, Any]
    seconds: float
    gain: float
    """Share of the step that it saves."""
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


def faster(report: StepReport, most: int = 3) -> list[Faster]:
    """The changes that save most among those that fit memory, best first, at most one of each kind."""
    from distsim.engine.memory import memory_of

    tried: list[tuple[Faster, str, Setup]] = []
    same = {name: getattr(report.setup, name) for name in ("accelerator", "cluster", "framework")}
    for kind, words, options in changes(report.setup):
        try:
            setup = resolve(_changed(report.setup, options), same)
            seconds = seconds_of(setup)
        except DistsimError:
            continue
        gain = 1 - seconds / report.seconds
        if gain >= LEAST_GAIN:
            shown = {name: value for name, value in options.items() if value is not None}
            tried.append((Faster(words, shown, seconds, gain, True), kind, setup))
    found: list[Faster] = []
    kinds: set[str] = set()
    for one, kind, setup in sorted(tried, key=lambda entry: -entry[0].gain):
        if kind in kinds or (report.memory.fits and not memory_of(setup).fits):
            continue
        kinds.add(kind)
        found.append(one)
        if len(found) == most:
            break
    return found


def _changed(setup: Setup, options: dict[str, Any]) -> Job:
    """The job with other options, the GPUs and the tokens of a step as they are."""
    y, job = setup.layout, setup.job
    layers = BALANCED if job.stage_layers == BALANCED or "stage_layers" in options else None
    kept = {"gpus": y.gpus, "global_batch": y.micro_batch * y.micro_batches * y.dp, "dp": None, "zero_group": None}
    return job.model_copy(update={**kept, **options, "stage_layers": layers})


def changes(setup: Setup) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, words, options) of every change worth computing."""
    y, job = setup.layout, setup.job
    if setup.recompute != "none":
        yield "recompute", "no recomputation", {"recompute": "none", "recompute_layers": None}
    if setup.recompute == "full":
        yield "recompute", "recompute attention only", {"recompute": "selective", "recompute_layers": None}
    for size in divisors(y.micro_batch * y.micro_batches):
        if size != y.micro_batch and size in (y.micro_batch * 2, y.micro_batch * 4, y.micro_batch // 2):
            yield "micro-batch", f"micro-batches of {size}", {"micro_batch": size}
    for name, words in (("tp", "tensor parallelism"), ("pp", "pipeline stages"), ("cp", "context parallelism")):
        old = getattr(y, name)
        for size in (old // 4, old // 2, old * 2):
            if size >= 1 and y.gpus % size == 0:
                extra = {"vpp": None, "schedule": None} if name == "pp" and size == 1 else {}
                yield name, f"{words} {size}", {name: size, **extra}
    if y.pp > 1:
        for chunks in (2, 4):
            if chunks > y.vpp:
                yield "vpp", f"{chunks} model chunks per stage", {"vpp": chunks, "schedule": None}
    for zero in range(4):
        if zero != y.zero and y.dp * y.cp > 1:
            yield "zero", f"ZeRO {zero}", {"zero": zero}
    if y.attention == "eager":
        yield "attention", "flash attention", {"attention": "flash"}
    if y.pp > 1 and setup.framework.supports.uneven and job.stage_layers is None:
        yield "stage-layers", "stages of equal work", {"stage_layers": "balanced"}
    if setup.framework.compiled and not job.compile:
        yield "compile", "torch.compile", {"compile": True}
