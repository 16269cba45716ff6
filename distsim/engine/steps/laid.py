"""Steps that are sums of operators which were timed one by one (``laid_end_to_end`` of a framework): embedding and
output layer keep the GPU for themselves, where in a real step the host issues layers meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from distsim.arrays import Number, nothing, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.sums import CLASSES, StageCompute
from distsim.engine.steps.stage_seconds import gpu_seconds, host_seconds, phase_seconds

PART = ".ends"
"""What their numbers are called, beside those of the whole stage."""
FIRST = f"forward{PART}.{CLASSES[0]}"
"""One of them, which only tables of real steps alone lack."""
Pair = tuple[Number, Number]
"""Seconds of forward, and of backward with what is computed again."""


def end_numbers(setup: Setup, compute: StageCompute) -> dict[str, Number]:
    """What embedding and output layer of a stage take, as flat numbers; none where steps are real ones."""
    if not setup.framework.laid_end_to_end:
        return {}
    return {f"{phase}{PART}.{name}": getattr(sums, name) for phase, sums in compute.ends.items() for name in CLASSES}


def ends_apart(
    stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number], work: tuple[Pair, Pair]
) -> tuple[tuple[Pair, Pair], Pair]:
    """The seconds of GPU and host (``work``) without embedding and output layer, and what these take by themselves;
    all and nothing where steps are real ones."""
    if nothing(layout["end_to_end"]) or FIRST not in stage:
        return work, (0.0, 0.0)
    run = gpu_seconds(stage, f"forward{PART}", timing), gpu_seconds(stage, f"backward{PART}", timing)
    issued = host_seconds(stage, layout, timing, PART)
    forward, backward = (phase_seconds(*pair, layout) for pair in zip(run, issued, strict=True))
    laid, (gpu, host) = layout["end_to_end"], work
    return (_less(gpu, run, laid), _less(host, issued, laid)), (where(laid, forward, 0.0), where(laid, backward, 0.0))


def _less(whole: Pair, part: Pair, laid: Number) -> Pair:
    """What a part leaves of seconds where it stands apart."""
    return whole[0] - where(laid, part[0], 0.0), whole[1] - where(laid, part[1], 0.0)
