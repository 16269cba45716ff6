"""Activations that go to the host's memory, and what of them is on the GPU nevertheless."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.engine.footprint.saved import Saved
from distsim.engine.jobs.resolve import Setup

LAYERS_ON_GPU = 2
"""Layers whose saved tensors are on the GPU: one computes while another is copied (NVIDIA/TransformerEngine pytorch
cpu_offload.py: a layer's copy must have ended when the one after it has)."""


class Offloaded:
    """The activations of a stage that are copied to the host."""

    def __init__(self, setup: Setup, saved: Saved) -> None:
        self.saved = saved
        self.share: Number = 0.0
        """How much of what layers keep is copied."""
        if "activations" in setup.offload:
            self.share = setup.offload_share * saved.leaving / maximum(saved.layers, 1)

    @property
    def stays(self) -> Number:
        """What a micro-batch keeps on the GPU for good."""
        return self.saved.layers * (1 - self.share)

    def forward_end(self) -> Number:
        """What of one micro-batch is on the GPU when its forward pass has ended."""
        return self._there(self.saved.layers, LAYERS_ON_GPU)

    def in_backward(self, layers: Number) -> Number:
        """The same of ``layers`` before the one that runs backward."""
        return self._there(layers, LAYERS_ON_GPU - 1)

    def _there(self, layers: Number, most: int) -> Number:
        if isinstance(self.share, float) and not self.share:
            return layers
        passing = minimum(layers, most * self.saved.per_layer)
        return layers * (1 - self.share) + passing * self.share
