"""Outputs of a pipeline's last stage that its runtime still refers to when the loss has been taken of them."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, some, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.layers.head import TOGETHER
from distsim.layers.names import LOSS


class Outputs(NamedTuple):
    """Bytes held at the moments of a step, beside what the loss itself makes or keeps of the same tensors."""

    loss: Number = 0
    loss_backward: Number = 0
    layers: Number = 0
    """While the last micro-batch that is held runs backward through the layers."""
    step: Number = 0
    """Until the next step begins."""

    @property
    def together(self) -> Number:
        """While those of all micro-batches are put into one tensor, of which the step makes nothing."""
        return 2 * self.step


def outputs_of(setup: Setup, stage: Stage) -> Outputs:
    """What torch.distributed.pipelining holds (stage.py): ``fwd_cache`` the output of each micro-batch until its
    backward is over, ``output_chunks`` those of all where the step is asked for them (``buffers.pipeline_outputs``)."""
    held, kernels, pp = setup.framework.buffers.pipeline_outputs, setup.kernels, setup.layout.pp
    if held == "freed" or stage.head is None or not some(pp > 1) or kernels.loss in TOGETHER:
        return Outputs()
    each = setup.precision.activation_bytes
    positions, words = next(row.shape for row in stage.head.operations if row.name == LOSS)
    one, flying = where(pp > 1, positions * words * each, 0), stage.head_in_flight
    count = setup.layout.micro_batches if held == "step" else flying
    itself = kernels.loss == "fused" and kernels.loss_kept_bytes == each  # the loss keeps the very same
    until = count * one if held == "step" else 0
    if itself:
        beside = (count - flying) * one
        return Outputs(beside, beside, beside + one, until)
    named = kernels.loss == "eager" and kernels.loss_holds_logits == "narrow"  # counted with the loss's backward
    return Outputs((count - 1) * one, (count - (1 if named else 0)) * one, count * one, until)
