"""Single changes that can make a step faster on the same GPUs with the same global batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distsim.architectures import traits_of
from distsim.arrays import ceil_div
from distsim.engine.advice.recomputation import less_recomputation
from distsim.engine.jobs.dispatch import can_send_once, sends_once, usual_once
from distsim.engine.jobs.graphs import captures
from distsim.engine.jobs.lacking import sixteen_bits, without_flash
from distsim.engine.jobs.profile import fused_instead, other_losses
from distsim.engine.jobs.reference import whole_pairs
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.tp_overlap import overlapped
from distsim.specs.context_modes import context_modes
from distsim.specs.job import Job
from distsim.specs.rules import divisors
from distsim.specs.stage_layers import BALANCED

INTERLEAVED = "interleaved-1f1b"


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
    if layout.pp > 1 and setup.framework.supports.uneven and job.stage_layers != BALANCED:
        yield "stage layers", "stages of equal compute", {"stage_layers": "balanced"}
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
