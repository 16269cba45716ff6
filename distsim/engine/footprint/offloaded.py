"""Activations and gradients that go to the host's memory, and what of them is on the GPU nevertheless."""

from __future__ import annotations

from distsim.arrays import Number, maximum, minimum, nothing, product, where
from distsim.engine.footprint.saved import Saved
from distsim.engine.jobs.resolve import Setup
from distsim.engine.jobs.stages import Stage

BEFORE = 1
"""Layers whose tensors come back while the one after them runs backward."""


def host_buffer(setup: Setup, stage: Stage) -> dict[str, Number]:
    """The buffer through which they go, at stages 1 and 2."""
    zero = setup.layout.zero
    largest = maximum(0, *(p.elements / p.copies for p, _ in stage.parameters if p.trains))
    each = where((zero >= 1) & (zero <= 2), setup.precision.parameter_bytes, 0)
    return {"largest_elements": largest, "bytes_each": each}


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
        """Bytes of a micro-batch that stay on the GPU for good."""
        return product(self.saved.layers, 1 - self.share)

    def forward_end(self) -> Number:
        """Bytes of one micro-batch that are on the GPU when its forward pass has ended."""
        return self._there(self.saved.layers, self.stash)

    def in_backward(self, layers: Number) -> Number:
        """Bytes that offloading keeps on the GPU of the ``layers`` before the one that runs backward."""
        return self._there(layers, BEFORE)

    def _there(self, layers: Number, most: int) -> Number:
        if nothing(self.share):
            return layers
        passing = minimum(layers, most * self.saved.per_layer)
        return layers * (1 - self.share) + passing * self.share
