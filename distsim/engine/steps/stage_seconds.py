"""Seconds of a stage's work on the GPU and of the host that issues it, from its flat numbers and what is fitted of each
kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distsim.arrays import Number, maximum, nothing, where
from distsim.engine.kernels.sums import PHASES, PRODUCTS
from distsim.engine.steps.beside import exposed
from distsim.formulas.step import BLOCKING_SECONDS, at_share_seconds, paced_seconds, scaled_seconds

BACKWARD_ISSUE = 0.7
"""Host time per kernel in backward over forward: autograd issues from C++; what is computed again is forward's code
(assumed)."""
PRODUCT_KINDS = tuple(f"{phase}.{name}" for phase in PHASES for name in PRODUCTS)


def product_seconds(stage: Mapping[str, Number], phase: str, timing: Mapping[str, Number]) -> Number:
    """Matrix products with weights, dense and grouped."""
    wide = stage[f"{phase}.matmul"] + at_share_seconds(stage[f"{phase}.grouped"], timing["grouped"])
    narrow = stage[f"{phase}.matmul8"] + at_share_seconds(stage[f"{phase}.grouped8"], timing["grouped"])
    return at_share_seconds(wide + at_share_seconds(narrow, timing["matmul_narrow"]), timing["matmul"])


def products_of(stages: Sequence[Mapping[str, Number]], micro_batches: Number) -> Number:
    """Seconds of a step that the products of the busiest stage take at the best measured rates."""
    return micro_batches * maximum(0.0, *(sum(stage[kind] for kind in PRODUCT_KINDS) for stage in stages))


def gpu_seconds(stage: Mapping[str, Number], phase: str, timing: Mapping[str, Number]) -> Number:
    """All of a phase of one micro-batch, exchanges apart."""
    return (
        product_seconds(stage, phase, timing)
        + at_share_seconds(stage[f"{phase}.attention"], timing["attention"])
        + at_share_seconds(stage[f"{phase}.memory"], timing["stream"])
        + scaled_seconds(timing["kernel_gap_seconds"], stage[f"{phase}.kernels"])
        + scaled_seconds(timing["kernel_issue_seconds"], stage[f"{phase}.waits"])
    )  # fmt: skip


def phase_seconds(gpu: Number, host: Number, layout: Mapping[str, Number]) -> Number:
    """Seconds of a phase that the GPU works for so long and the host issues for so long."""
    paced = paced_seconds(gpu, host)
    return paced if nothing(layout["blocking"]) else where(layout["blocking"], gpu + host, paced)


class Queue(NamedTuple):
    """A pass as GPU and host see it, in seconds."""

    gpu: Number
    host: Number
    paced: Number
    """What it takes."""
    layout: Mapping[str, Number]

    def longer(self, wait: Number) -> Number:
        """What a wait in the GPU's queue adds: less where the host, which goes on meanwhile, sets the pace."""
        return 0.0 if nothing(wait) else phase_seconds(self.gpu + wait, self.host, self.layout) - self.paced

    def worked(self, whole: Number) -> Number:
        """Seconds of the ``whole`` pass in which the GPU does not wait for the host: an exchange that is queued beside
        its work has that to hide behind."""
        return whole - (self.paced - self.gpu)

    def left(self, exchange: Number, whole: Number, never: Number) -> Number:
        """What an exchange beside the work of the ``whole`` pass adds to it."""
        return self.longer(exposed(exchange, self.worked(whole), never))


def host_seconds(
    stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number], part: str = ""
) -> tuple[Number, Number]:
    """What the host takes to issue forward, and backward with what is computed again; and to wait for each kernel,
    where it does. Of all of a stage, or of a ``part`` of its numbers."""
    first, back, again = host_phases(stage, layout, timing, part)
    return first, back + again


def host_phases(
    stage: Mapping[str, Number], layout: Mapping[str, Number], timing: Mapping[str, Number], part: str = ""
) -> tuple[Number, Number, Number]:
    """The same of forward, backward and what is computed again."""
    issue, wait = timing["kernel_issue_seconds"], layout["blocking"] * BLOCKING_SECONDS
    (first, back, again), run = ([stage[f"{phase}{part}.{name}"] for phase in PHASES] for name in ("issued", "kernels"))
    return first * issue + run[0] * wait, back * BACKWARD_ISSUE * issue + run[1] * wait, again * issue + run[2] * wait
