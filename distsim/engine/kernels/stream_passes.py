"""What residual streams that plain torch mixes or gates move through memory."""

from __future__ import annotations

from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.softmax_passes import plain_torch

STREAM_PASSES = {"stream sum": (19.6, 57.3), "stream spread": (6.3, 12.5)}
"""Passes over all residual streams in 16 bits, forward and backward, of plain torch: widened to fp32 and normed before
their weights are made of them, weighted and summed; spread by a small product. Counted operation by operation on torch
2.13 (benchmarks/torch_passes.py), products for the weights apart (transformers 5.24
models/deepseek_v4/modeling_deepseek_v4.py, DeepseekV4HyperConnection and DeepseekV4DecoderLayer; alike for 4,096 and
7,168 channels)."""
GATED_STREAM_PASSES = {"stream sum": (6.3, 15.6), "stream spread": (4.3, 12.5)}
"""The same of streams whose elements have gates, without the norm of the streams: sigmoids, what they let pass, its
mean; counted in the same way of four streams (models/qwen4_exp/modeling_qwen4_exp.py, Qwen4ExpTextGatedResidual and
Qwen4ExpTextDecoderLayer; of two 7% more forward)."""


def streams_in_torch(setup: Setup) -> bool:
    """Whether residual streams are read and written by plain torch's kernels, one after another."""
    return setup.kernels.streams == "composed" and not setup.compiled and plain_torch(setup)


def stream_passes(setup: Setup, role: str) -> tuple[float, float] | None:
    """Passes of plain torch over all streams where it mixes them, or gates their elements, in a row of this role."""
    if not streams_in_torch(setup):
        return None
    if setup.model.stream_mixing:
        return STREAM_PASSES.get(role)
    return GATED_STREAM_PASSES.get(role) if setup.model.stream_rank else None
