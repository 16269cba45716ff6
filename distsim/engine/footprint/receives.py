"""Tensors that a pipeline's runtime makes before the first step for all that a stage will receive."""

from __future__ import annotations

from distsim.arrays import Number, minimum, where
from distsim.engine.figures import Figures
from distsim.engine.jobs.boundary import boundary_bytes
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage
from distsim.formulas.buffers import receive_buffer_bytes
from distsim.layers.names import LAYER_INPUT


def receive_buffers(setup: Setup, stage: Stage, figures: Figures) -> Number:
    """What torch.distributed.pipelining holds of a rank's chunks (stage.py, _setup_forward_recv_info and
    _setup_backward_recv_info): one tensor for each micro-batch and way, but for activations where a chunk begins the
    model and gradients where one ends it. Inputs that layers keep for backward are these very tensors."""
    layout = setup.layout
    into = layout.vpp - int(stage.embedding is not None)
    back = layout.vpp - int(stage.head is not None)
    kept = where(_keeps_input(setup, stage), minimum(stage.in_flight, layout.micro_batches) * into, 0)
    return where(layout.pp > 1, 1, 0) * figures.use(
        "receive buffers of the pipeline", receive_buffer_bytes, message_bytes=boundary_bytes(setup),
        micro_batches=layout.micro_batches, ways=into + back, kept_inputs=kept,
    )  # fmt: skip


def _keeps_input(setup: Setup, stage: Stage) -> Number:
    """Whether the first layer keeps what the stage received."""
    first = stage.blocks[0].operations if stage.blocks else ()
    saved = any(tensor.name == LAYER_INPUT for operation in first for tensor in operation.saved)
    return where(setup.layout.recompute_layers != 0, 1, int(saved))
