"""Activations that go to the host's memory, and what of them is on the GPU nevertheless."""

from __future__ import annotations

from typing import NamedTuple

from distsim.arrays import Number, maximum, minimum, where
from distsim.engine.footprint.saved import Saved
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage

BEFORE = 1
"""Layers whose tensors come back while the one after them runs backward."""
CHUNKS_IN_FORWARD, CHUNKS_IN_BACKWARD = 4, 3
"""What is on the GPU where a pipeline copies chunks of layers whole: buffers of the chunk that runs backward and of the
next one, and a chunk on its way out; in forward also the one that is made (kwai/Megatron-Kwai core/pipeline_parallel/
offload.py, onload_async with ping_pong_onload; schedules.py, schedule_1f1b_offload)."""


class Window(NamedTuple):
    """Layers whose tensors are on the GPU when a forward pass ends, and beside the layer that runs backward."""

    forward: Number
    backward: Number


class Offloaded:
    """The activations of a stage that are copied to the host."""

    def __init__(self, setup: Setup, stage: Stage, saved: Saved) -> None:
        self.saved = saved
        self.share: Number = 0.0
        """How much of what layers keep is copied."""
        if "activations" in setup.offload:
            self.share = setup.offload_share * saved.leaving / maximum(saved.layers, 1)
        self.chunks = setup.kernels.offload_unit == "chunk"
        self.whole = saved.layers * stage.in_flight
        self.window = _window(setup, stage)

    @property
    def stays(self) -> Number:
        """What a micro-batch keeps on the GPU for good."""
        return self.saved.layers * (1 - self.share)

    def forward_end(self) -> Number:
        """What of one micro-batch is on the GPU when its forward pass has ended, with others' on their way."""
        return self._there(self.saved.layers, self.window.forward)

    def in_backward(self, layers: Number) -> Number:
        """The same of ``layers`` before the one that runs backward."""
        return self._there(layers, self.window.backward)

    def _there(self, layers: Number, most: Number) -> Number:
        if isinstance(self.share, float) and not self.share:
            return layers
        passing = minimum(self.whole if self.chunks else layers, most * self.saved.per_layer)
        return layers * (1 - self.share) + passing * self.share


def _window(setup: Setup, stage: Stage) -> Window:
    """Layers, but where a pipeline copies chunks."""
    y, stash = setup.layout, setup.kernels.offload_stash
    if setup.kernels.offload_unit == "layer":
        return Window(stash, BEFORE)
    chunk = stage.layer_count / y.vpp
    return Window(
        where(y.pp > 1, CHUNKS_IN_FORWARD * chunk, stash), where(y.pp > 1, CHUNKS_IN_BACKWARD * chunk - 1, BEFORE)
    )
