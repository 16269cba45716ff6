"""Activations that go to the host's memory, and what of them is on the GPU nevertheless."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum
from distsim.engine.footprint.saved import Saved
from distsim.engine.jobs.resolve import Setup

BEFORE = 1
"""Layers whose tensors come back while the one after them runs backward."""


class Offloaded:
    """The activations of a stage that are copied to the host."""

    def __init__(self, setup: Setup, saved: Saved) -> None:
        self.saved, self.stash = saved, setup.kernels.offload_stash
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
        return self._there(self.saved.layers, self.stash)

    def in_backward(self, layers: Number) -> Number:
        """The same of ``layers`` before the one that runs backward."""
        return self._there(layers, BEFORE)

    def _there(self, layers: Number, most: int) -> Number:
        if isinstance(self.share, float) and not self.share:
            return layers
        passing = minimum(layers, most * self.saved.per_layer)
        return layers * (1 - self.share) + passing * self.share
