"""What copies to and from host memory leave exposed of a micro-batch's passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distsim.arrays import Number
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.beside import exposed


def copied(stage: Mapping[str, Number], micro_batches: Number) -> tuple[Number, Number]:
    """Seconds of a micro-batch's copies that run beside its forward, and its backward."""
    forward, backward = (stage[f"offload_{phase}"] / micro_batches for phase in PHASES[:2])
    return forward, backward


def copies_left(
    stage: Mapping[str, Number], micro_batches: Number, beside: Sequence[Number], never: Number
) -> tuple[Number, Number]:
    """What is left of them beside each pass: what forward copies has no other work to hide behind than its own, since
    memory is given up only once a copy is there (NVIDIA/TransformerEngine pytorch/cpu_offload.py; pytorch/torchtune
    training/_activation_offloading.py), and backward waits for what it reads."""
    forward, backward = (
        exposed(size, work, never) for size, work in zip(copied(stage, micro_batches), beside, strict=True)
    )
    return forward, backward


def waited(stage: Mapping[str, Number], micro_batches: Number) -> Number:
    """Seconds of a micro-batch's copies beside which nothing runs, where software waits for each."""
    return stage["offload_waited"] / micro_batches
