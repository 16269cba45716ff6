"""What a loss passes over, by how a framework makes it."""

from __future__ import annotations

from distsim.arrays import Number, where
from distsim.engine.jobs.resolve import Setup
from distsim.engine.kernels.plain_costs import SOFTCAP_PASSES
from distsim.formulas.caches import reread_share
from distsim.layers.ledger import Operation
from distsim.units import FP32_BYTES

# Bytes per logit, forward and backward, and those of them that are read again at once. Composed cross entropy in fp32:
# cast (6), log-softmax (three readings and one writing, 16); its gradient (4), that of the log-softmax (two readings of
# both operands and a writing, 20), cast (6). Vocabulary-parallel: cast (6), maximum (4), difference (8), exponential
# (8), sum (4), quotient (8); product (8), cast (6). One kernel: 2 or 4 each way. Composed on the 2-byte logits
# themselves: log-softmax (8); its gradient (2), that of the log-softmax (10). Recast, the same under autocast, which
# makes the log-softmax fp32 for the loss proper: cast (6); its gradient (4), cast (6). On an H100 824 million logits of
# a GPT-2 take 1.50, 1.9, 1.03, 1.9 and 2.16 ms (benchmarks/gpu, "gpt2 by hand"): as 4.8, 6, 3.3, 6 and 6.9 bytes.
# Compiled by XLA, whose kernels end at each reduction: fp32 logits written (2 more than 16 bits), read for their
# maximum, for the sum of exponentials and for the target's (12); read again, the gradient written in 16 bits (6).
# Cut: none leave the chip.
# Steps: the same vocabulary-parallel one, each of its steps compiled by torch for itself (Megatron core's
# fused_cross_entropy.py): cast and maximum, difference and exponential, quotient; target's share taken out of a copy,
# product and cast. On an H100 671, 1,734 and 870 us, 825 and 1,046 us for 311 million logits (profile of Qwen3 8B in
# BastiaanGroot/ML-Infrastructure-Engineer training/profiles): as many bytes at the 2.48 TB/s that passes reach there in
# the mean (presets/timing/fitted.toml).
LOSS_BYTES = {"eager": (22.0, 30.0), "narrow": (8.0, 12.0), "recast": (14.0, 20.0), "vocab-parallel": (38.0, 14.0),
              "one": (4.0, 4.0), "compiled": (14.0, 6.0), "steps": (26.0, 15.0), "cut": (0.0, 0.0)}  # fmt: skip
# Of these, what is read again soon after, which the last cache may hold.
LOSS_AGAIN = {"eager": (8.0, 8.0), "narrow": (4.0, 4.0), "recast": (4.0, 4.0)}
NARROW_LOGIT_BYTES = 2  # of bf16 and fp16
SHIFTED = (2, 3)
"""Passes over logits without those of the last position: a copy, which of one sequence is a view; backward zeros, into
which their gradient is copied."""


def loss_bytes(setup: Setup, operation: Operation) -> tuple[Number, Number]:
    """The loss and the metrics that take it again pass over all logits."""
    tokens, words = operation.shape[:2]
    chip = setup.accelerator.chip

    def passed(kernel: str, way: int) -> Number:
        again = LOSS_AGAIN.get(kernel, (0.0, 0.0))[way]
        row = words * (FP32_BYTES if kernel == "eager" else NARROW_LOGIT_BYTES)
        return LOSS_BYTES[kernel][way] - again * (1 - reread_share(row, chip.units or 0, float(chip.cache or 0)))

    kernel, metrics = loss_kernel(setup), setup.kernels.loss_metrics
    forward = passed(kernel, 0) + (metrics * passed("eager", 0) if metrics else 0.0)
    backward = passed(kernel, 1) + (forward if setup.kernels.loss_chunk_again else 0.0)
    if setup.kernels.loss_shifted and setup.model.causal and kernel in LOSS_AGAIN:
        each = FP32_BYTES if setup.kernels.loss_upcast is True else setup.precision.activation_bytes
        forward = forward + where(setup.layout.micro_batch > 1, SHIFTED[0] * each, 0)
        backward = backward + SHIFTED[1] * each
    if setup.model.caps_logits and kernel in LOSS_AGAIN:
        each = setup.precision.activation_bytes
        forward, backward = forward + SOFTCAP_PASSES[0] * each, backward + SOFTCAP_PASSES[1] * each
    return tokens * words * forward, tokens * words * backward


def loss_kernel(setup: Setup) -> str:
    """How the framework makes its loss: a key of LOSS_BYTES."""
    kernels = setup.kernels
    wide, autocast = kernels.loss_upcast is True, setup.precision.autocast
    eager = "eager" if wide or (autocast and kernels.loss_upcast) else "recast" if autocast else "narrow"
    return kernels.loss_kernel or (eager if kernels.loss in ("eager", "with-head") else "one")
