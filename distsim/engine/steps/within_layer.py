"""What hides exchanges of sharded parameters where each layer's are gathered inside of it: layers are one scanned loop,
whose turns do not look ahead, so that weights of experts arrive beside the attention before them, and their gradients
leave beside its backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distsim.arrays import Number, maximum
from distsim.engine.kernels.sums import CLASSES, PHASES, Sums
from distsim.engine.steps.stage_seconds import gpu_seconds

PART = ".experts"
"""What the numbers of experts' work are called, beside those of the whole stage."""


def expert_numbers(experts: Mapping[str, Sums]) -> dict[str, Number]:
    """What experts of a stage take, as flat numbers; none where any work hides exchanges of parameters."""
    return {f"{phase}{PART}.{name}": getattr(sums, name) for phase, sums in experts.items() for name in CLASSES}


def without_experts(
    work: Sequence[Number], tokens: Sequence[Number], stage: Mapping[str, Number], timing: Mapping[str, Number]
) -> tuple[Number, Number]:
    """Seconds of forward and backward that can hide what is gathered and reduced in them: not those of experts, nor in
    which their ``tokens`` are exchanged, since collectives follow one another."""
    if f"forward{PART}.{CLASSES[0]}" not in stage:
        return work[0], work[1]
    f, b, r = (gpu_seconds(stage, f"{phase}{PART}", timing) for phase in PHASES)
    return maximum(work[0] - tokens[0] - f, 0.0), maximum(work[1] - tokens[1] - b - r, 0.0)
