"""Exposed time of a micro-batch's copies to and from host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distsim.arrays import Number, maximum, nothing, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.sums import PHASES
from distsim.engine.steps.beside import exposed


def loses_to_copies(setup: Setup) -> int:
    """Whether copies and what runs beside them lose to each other what exchanges do: each iteration of a loop that XLA
    compiles waits for its own. Else copy engines take no unit of a chip, and a link to a host a fiftieth of its
    memory's bandwidth."""
    return int(setup.kernels.compiler == "xla")


def one_link(setup: Setup) -> Number:
    """Whether GPUs that share states reach each other through the link that they have to their host: cards without
    links of their own, where no bridge joins all of them."""
    fabric, layout = setup.cluster.fabric, setup.layout
    return where(layout.gpus / layout.pp <= (fabric.bridged or 0), 0, 1) if fabric.kind == "pcie" else 0


def free_seconds(computed: Number, exchanged: Number, left: Number, shared: Number) -> Number:
    """Seconds in which copies find their link free, beside what is computed and the exposed part (``left``) of what is
    exchanged; where both share one link, only what is computed while nothing is exchanged."""
    apart = computed + left
    return apart if nothing(shared) else where(shared, maximum(apart - exchanged, 0.0), apart)


def copied(stage: Mapping[str, Number], micro_batches: Number) -> tuple[Number, Number]:
    """Seconds of a micro-batch's copies that overlap its forward, and its backward."""
    forward, backward = (stage[f"offload_{phase}"] / micro_batches for phase in PHASES[:2])
    return forward, backward


def copies_left(
    stage: Mapping[str, Number], micro_batches: Number, beside: Sequence[Number], lost: Number
) -> tuple[Number, Number]:
    """Their exposed seconds in each pass: forward's copies can hide only behind forward's own work, since memory is
    freed only once a copy has arrived (NVIDIA/TransformerEngine pytorch/cpu_offload.py; pytorch/torchtune
    training/_activation_offloading.py), and backward waits for what it reads. Both lose the share
    ``lost`` to what runs beside them (``loses_to_copies``)."""
    forward, backward = (
        exposed(size, work, lost) for size, work in zip(copied(stage, micro_batches), beside, strict=True)
    )
    return forward, backward


def waited(stage: Mapping[str, Number], micro_batches: Number) -> Number:
    """Seconds of a micro-batch's blocking copies, where software waits for each."""
    return stage["offload_waited"] / micro_batches
