"""What recordings of PyTorch on fake tensors do not show: what kernels make while they run."""

from __future__ import annotations

from dataclasses import replace

from distsim.engine.jobs.resolve import Setup


def as_recorded(setup: Setup) -> Setup:
    """The job without the product that a softmax's backward makes on a GPU (tests/test_plain_kernels.py)."""
    return replace(setup, kernels=setup.kernels.model_copy(update={"softmax_product": False}))
